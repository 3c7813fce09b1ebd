//! The wire: what holds for the bytes of a connection, before and after HTTP is spoken on it.

pub mod answer;
pub mod chunked;
pub mod fault;
pub mod frames;
pub mod framing;
pub mod limits;
pub mod load;
pub mod lost;
pub mod socket;
pub mod traffic;

mod head;
