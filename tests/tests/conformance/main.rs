//! The official conformance suite, on loopback: our own fixture directly, then through the front door in front of it,
//! which must not lose a single check, then the tools that the front door serves itself. The same through pods stands in
//! the cluster suite.

mod declared;
mod relayed;
