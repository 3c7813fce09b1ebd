//! The front door's ports. They lie where MCP servers do not listen (and service meshes neither), so that a backend
//! may use any usual port, and below the ephemeral range (32768).

/// MCP clients, the page and the public health endpoints.
pub const PUBLIC: u16 = 24080;
/// Other pods of the same server, which bring what belongs to sessions of this one. Nobody else may reach it.
pub const PEER: u16 = 24081;
/// What the pod calls [`PEER`].
pub const PEER_NAME: &str = "peer";
/// Probes, metrics and `/status`.
pub const MANAGEMENT: u16 = 24082;
/// Every port of the front door, reserved ones included: a backend must not listen on any of them.
pub const RESERVED: std::ops::RangeInclusive<u16> = 24080..=24089;
