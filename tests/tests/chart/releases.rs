//! Releases.
