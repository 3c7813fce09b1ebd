//! Every decision of the operator, as pure functions: no client, no clock, no randomness. What the world is like comes
//! in as [`Observed`]; what is to be done goes out as a [`Plan`], or as a [`Rejection`] where the spec cannot be served.

mod autoscaling;
pub mod claims;
mod declared;
mod desired;
pub mod events;
pub mod mint;
pub mod names;
pub mod observed;
pub mod outcome;
mod peers;
pub mod plan;
pub mod references;
pub mod refresh;
mod restricted;
mod revisions;
mod rotation;
pub mod settings;
pub mod status;
pub mod stored;
mod text;
mod validate;

pub use observed::Observed;
pub use outcome::{Applied, Desired, Plan, Rejection};
pub use settings::Settings;
pub use status::Outcome;

/// Field manager of every child.
pub const FIELD_MANAGER: &str = "mooring";
/// Field manager of the status.
pub const STATUS_FIELD_MANAGER: &str = "mooring-status";
