//! The planner's tests: snapshots of whole bundles, of statuses and of refusals, and laws that hold for every spec.

#[cfg(test)]
mod autoscaling;
#[cfg(test)]
mod bounds;
#[cfg(test)]
mod bundles;
#[cfg(test)]
mod events;
#[cfg(test)]
mod ingress_controllers;
#[cfg(test)]
mod keys;
#[cfg(test)]
mod laws;
#[cfg(test)]
mod peers;
#[cfg(test)]
mod refresh;
#[cfg(test)]
mod rejected;
#[cfg(test)]
mod rotation;
#[cfg(test)]
mod statuses;
#[cfg(test)]
mod world;
