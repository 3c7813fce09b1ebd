//! Tests of the front door as a whole: the pipeline without sockets, and over loopback.

pub mod kubelet;
