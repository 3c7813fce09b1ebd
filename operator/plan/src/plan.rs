//! Puts the decisions together: what to mint, to revoke, to apply and to prune.

use jiff::Timestamp;
use mooring_api::McpServer;

use crate::observed::Observed;
use crate::outcome::{Plan, Rejection};
use crate::settings::Settings;

/// What is to be done for one McpServer.
pub fn plan(server: &McpServer, observed: &Observed, settings: &Settings, _now: Timestamp) -> Result<Plan, Rejection> {
    let _ = (server, observed, settings);
    Err(Rejection {
        reason: mooring_api::Reason::InvalidSpec,
        field: "spec".to_owned(),
        message: "not written yet".to_owned(),
    })
}
