//! The operator on a real control plane: etcd, API server and controller manager, with a proxy in between that breaks
//! what a test names. Nothing here runs a pod; the cluster suite does.

mod world;

mod children;
mod corpus;
mod foreign;
mod kills;
mod rest;
