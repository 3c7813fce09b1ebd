//! Real processes of one server, each in a pod of its own, on loopback addresses: what happens to sessions when processes
//! are killed, stand still or stop, when the way between them is slow or cut, and when another one has their address.

#[cfg(test)]
mod backend;
#[cfg(test)]
#[path = "../common/mod.rs"]
mod common;
#[cfg(test)]
#[path = "../common/http.rs"]
mod http;
#[cfg(test)]
mod impostors;
#[cfg(test)]
mod link;
#[cfg(test)]
mod links;
#[cfg(test)]
mod pods;
#[cfg(test)]
mod processes;
