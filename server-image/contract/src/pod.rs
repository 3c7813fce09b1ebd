//! What the pod tells the front door about itself, in environment variables from the downward API. Without both of them
//! no session is sealed.

/// `metadata.uid`.
pub const UID_VARIABLE: &str = "MOORING_POD_UID";
/// `status.podIP`: where other pods reach this one.
pub const IP_VARIABLE: &str = "MOORING_POD_IP";
