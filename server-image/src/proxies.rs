//! Which peers are proxies in front of this server. What one of them says of the client, of the scheme and of the host that
//! the client used counts; what anybody else says does not. It decides from the peer's address alone.

use std::net::IpAddr;

use mooring_contract::{Network, NetworkError};

/// The proxies that are believed.
#[derive(Debug, Default)]
pub struct TrustedProxies(Vec<Network>);

impl TrustedProxies {
    /// Compiles the list; the error says which entry is wrong.
    pub fn new(list: &[String]) -> Result<Self, String> {
        let networks: Result<_, NetworkError> = list.iter().map(|network| network.parse()).collect();
        networks.map(Self).map_err(|error| format!("security.trustedProxies: {error}"))
    }

    /// Whether this peer is one.
    pub fn has(&self, peer: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(peer))
    }

    /// Whether there is no client that is not taken for one, at least where it comes over IPv4, or over IPv6.
    pub fn are_everybody(&self) -> bool {
        self.0.iter().any(Network::is_everything)
    }

    /// The list for the line that is printed at start.
    pub fn describe(&self) -> Vec<String> {
        self.0.iter().map(ToString::to_string).collect()
    }
}
