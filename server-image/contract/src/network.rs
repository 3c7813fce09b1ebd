//! Networks in which an address may lie, as people write them.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

/// An IP network in CIDR notation (RFC 4632, RFC 4291 section 2.3), or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(IpNet);

/// Why a text is no network that addresses can be compared with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// Neither an address nor a network.
    #[error("{0:?} is neither an IP address nor a network such as 10.244.0.0/16 or fd00::/8")]
    Malformed(String),
    /// Whoever wrote it may have meant one address, and would get a whole network.
    #[error("{0} has bits beyond its prefix: write {network}, or {address} for this address alone", network = .0.trunc(), address = .0.addr())]
    HostBits(IpNet),
    /// Addresses are compared as what they stand for, so it would contain none.
    #[error("{0} stands for IPv4 addresses: write it as an IPv4 network")]
    Mapped(IpNet),
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let network = text.parse().or_else(|_| text.parse().map(<IpNet as From<IpAddr>>::from));
        match network.map_err(|_| NetworkError::Malformed(text.to_owned()))? {
            network if network.addr() != network.network() => Err(NetworkError::HostBits(network)),
            IpNet::V6(mapped) if mapped.addr().to_ipv4_mapped().is_some() => Err(NetworkError::Mapped(mapped.into())),
            network => Ok(Self(network)),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl Network {
    /// Whether the address lies in it. An IPv4 address that is written as an IPv6 one (`::ffff:10.0.0.9`) is the IPv4 one.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }

    /// Whether every address of its family lies in it.
    pub fn is_everything(&self) -> bool {
        self.0.prefix_len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_lies_in_a_network_or_not() {
        let cases: [(&str, &[&str], &[&str]); 7] = [
            (
                "10.244.0.0/16",
                &["10.244.0.0", "10.244.255.255", "::ffff:10.244.1.2"],
                &["10.245.0.0", "10.243.255.255"],
            ),
            ("10.0.0.5", &["10.0.0.5", "::ffff:10.0.0.5"], &["10.0.0.4", "10.0.0.6", "::10.0.0.5"]),
            ("10.0.0.5/32", &["10.0.0.5"], &["10.0.0.6"]),
            ("fd00::/8", &["fd00::1", "fdff::"], &["fe00::", "10.0.0.1", "::ffff:10.0.0.1"]),
            ("2001:db8::1", &["2001:db8:0:0::1"], &["2001:db8::2"]),
            ("0.0.0.0/0", &["0.0.0.0", "255.255.255.255", "::ffff:1.2.3.4"], &["::", "::1"]),
            ("::/0", &["::", "ffff::"], &["1.2.3.4", "::ffff:1.2.3.4"]),
        ];
        for (network, inside, outside) in cases {
            let parsed: Network = network.parse().unwrap();
            let has = |address: &&&str| parsed.contains(address.parse().unwrap());
            assert!(inside.iter().all(|address| has(&address)), "{network}");
            assert!(!outside.iter().any(|address| has(&address)), "{network}");
            assert_eq!(parsed.is_everything(), network.ends_with("/0"), "{network}");
        }
    }

    #[test]
    fn what_is_no_network_is_told() {
        let cases = [
            ("", "\"\" is neither an IP address nor a network such as 10.244.0.0/16 or fd00::/8"),
            ("ingress.example.com", "is neither"),
            ("10.0.0", "is neither"),
            ("10.0.0.256", "is neither"),
            ("010.0.0.1", "is neither"),
            ("10.0.0.0/33", "is neither"),
            ("10.0.0.0/-1", "is neither"),
            ("10.0.0.0/255.0.0.0", "is neither"),
            ("10.0.0.5:80", "is neither"),
            ("[fd00::1]", "is neither"),
            ("fe80::1%eth0", "is neither"),
            ("fd00::/129", "is neither"),
            (" 10.0.0.5", "is neither"),
            ("*", "is neither"),
            (
                "10.0.0.5/8",
                "10.0.0.5/8 has bits beyond its prefix: write 10.0.0.0/8, or 10.0.0.5 for this address alone",
            ),
            ("fd00::5/8", "fd00::5/8 has bits beyond its prefix: write fd00::/8, or fd00::5 for this address alone"),
            ("::ffff:10.0.0.0/104", "stands for IPv4 addresses: write it as an IPv4 network"),
            ("::ffff:10.0.0.5", "stands for IPv4 addresses"),
        ];
        for (text, said) in cases {
            let error = text.parse::<Network>().expect_err(text).to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
