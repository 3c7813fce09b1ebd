//! Every decision of the operator, as pure functions: no client, no clock, no randomness. What the world is like comes
//! in as [`Observed`]; what is to be done goes out as a [`Plan`], or as a [`Rejection`] where the spec cannot be served.

pub mod observed;
pub mod outcome;
pub mod settings;

pub use observed::Observed;
pub use outcome::{Applied, Desired, Plan, Rejection};
pub use settings::Settings;

/// Field manager of every child.
pub const FIELD_MANAGER: &str = "mooring";
/// Field manager of the status.
pub const STATUS_FIELD_MANAGER: &str = "mooring-status";
