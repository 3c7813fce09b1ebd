//! The planner's tests: snapshots of whole bundles, of statuses and of refusals, and laws that hold for every spec.

mod bundles;
mod events;
mod ingress_controllers;
mod keys;
mod laws;
mod refresh;
mod rejected;
mod statuses;
mod world;
