//! The operator: everything that touches the world. What is to be done is decided in `mooring-plan`; here it is
//! observed, applied and published. Only [`apply`], [`publish`], [`refresh`] and [`lease`] write to the API server, and
//! only [`observe`] and [`watch`] read from it; the `keys` command does both, with the rights of whoever runs it.

pub mod apply;
pub mod backoff;
pub mod cli;
pub mod clock;
pub mod command;
pub mod dispatch;
pub mod fence;
pub mod key;
pub mod lease;
pub mod limit;
pub mod listener;
pub mod metrics;
pub mod observe;
pub mod publish;
pub mod queue;
pub mod random;
pub mod rbac;
pub mod reconcile;
pub mod refresh;
pub mod telemetry;
pub mod turns;
pub mod watch;
pub mod world;

#[cfg(test)]
mod fake;
