//! The `McpServer` resource: its types, its schema and the rules that the API server enforces. No I/O: the crate
//! depends on kube's derive macro alone.
//!
//! Every list and text has a bound, because the API server budgets the cost of the CEL rules by them.

pub mod condition;
pub mod crd;
pub mod quantity;
pub mod spec;
pub mod status;

pub use condition::{ConditionType, Reason};
pub use quantity::Quantity;
pub use spec::{McpServer, McpServerSpec};
pub use status::McpServerStatus;

/// Group of the resource, and prefix of every annotation that Mooring sets.
pub const GROUP: &str = "mooring.dev";
