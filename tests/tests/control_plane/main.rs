//! The operator on a real control plane: etcd, API server and controller manager, with a proxy in between that breaks
//! what a test names. Nothing here runs a pod; the cluster suite does.

/// The end of a look at the world: `Ok`, or an error with the reason.
macro_rules! holds {
    ($($condition_and_reason:tt)*) => {{
        anyhow::ensure!($($condition_and_reason)*);
        Ok(())
    }};
}

mod world;

mod children;
mod conditions;
mod corpus;
mod faults;
mod fields;
mod foreign;
mod keys;
mod kills;
mod leader;
mod rest;
mod upgrade;
