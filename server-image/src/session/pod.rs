//! Pods: who owns a session, and where that pod is reached.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use super::uuid;

/// The uid of a pod. It is no secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Uid(pub [u8; 16]);

impl fmt::Display for Uid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&uuid::spell(self.0))
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self}")
    }
}

/// A text that is no uid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write a UUID in lower case, as Kubernetes does")]
pub struct NoUid;

impl FromStr for Uid {
    type Err = NoUid;

    fn from_str(text: &str) -> Result<Self, NoUid> {
        uuid::parse(text.as_bytes()).map(Self).ok_or(NoUid)
    }
}

/// A pod, as a session's token names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pod {
    /// Which one it is.
    pub uid: Uid,
    /// Where it was when it sealed: a hint, for another pod may have that address by now.
    pub address: IpAddr,
}
