//! Sessions that stay on their pod: several front doors on addresses of their own, each before a backend of its own.

mod away;
pub mod fleet;
mod none;
mod older;
mod owner;
