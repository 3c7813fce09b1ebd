//! The Helm chart, with the real Helm: what it renders, how its releases come, change and go in a real API server, and
//! that the rights which it grants are those that the operator needs.

mod cluster;
mod offline;
mod operator;
mod releases;
mod rendered;
mod rights;
