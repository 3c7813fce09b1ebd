//! What the end-to-end suites, the benches and the demo stand on: a real Kubernetes that needs no container engine, images
//! made without tools, the real parts around it, and drivers for MCP clients that nobody here wrote.
//!
//! Nothing in here knows what Mooring's own rules are; a suite asserts, the harness only provides.

pub mod built;
pub mod cache;
pub mod clients;
pub mod cluster;
pub mod command;
pub mod conformance;
pub mod fault_proxy;
pub mod front_door_process;
pub mod images;
pub mod installed;
pub mod key_shim;
pub mod left_out;
pub mod mcp;
pub mod metrics;
pub mod operator_process;
pub mod parts;
pub mod preflight;
pub mod process;
pub mod product;
pub mod progress;
pub mod server_process;
pub mod sessions;
pub mod soak;
pub mod stdio_tap;
pub mod tap;
pub mod wait;

pub use cluster::{Cluster, Level, Options};
