//! What is compared, each as one process with one worker on a processor of its own.

use std::path::Path;

use anyhow::Result;
use mooring_tests::parts::proxies;
use mooring_tests::product;

use crate::bench::rig::door::Door;
use crate::bench::rig::load::Target;
use crate::bench::rig::proxies::{envoy, haproxy, nginx};
use crate::bench::rig::running::{Running, Start};
use crate::bench::rig::{Room, free, words, write};

/// The program of [`Peer::Bare`].
const BARE: &str = "bare-relay";

/// A proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// None: the callers reach the backend itself.
    Direct,
    /// Ours, with everything on.
    Mooring,
    /// The least that one on the same library could do.
    Bare,
    /// nginx.
    Nginx,
    /// Envoy.
    Envoy,
    /// HAProxy.
    Haproxy,
    /// The crate `mcp-proxy`.
    McpProxy,
}

impl Peer {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Direct, Self::Mooring, Self::Bare, Self::Nginx, Self::Envoy, Self::Haproxy, Self::McpProxy];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Mooring => "mooring-server",
            Self::Bare => BARE,
            Self::Nginx => "nginx",
            Self::Envoy => "envoy",
            Self::Haproxy => "haproxy",
            Self::McpProxy => "mcp-proxy",
        }
    }

    /// Gets its program, which may take minutes the first time.
    pub fn install(self) -> Result<()> {
        match self {
            Self::Direct | Self::Mooring => Ok(()),
            Self::Bare => product::program(BARE).map(drop),
            Self::Nginx => proxies::nginx().map(drop),
            Self::Envoy => proxies::envoy().map(drop),
            Self::Haproxy => proxies::haproxy().map(drop),
            Self::McpProxy => proxies::mcp_proxy().map(drop),
        }
    }

    /// Starts it in front of the backend at this port, and waits until it serves.
    pub async fn start(self, room: &Room, backend: u16) -> Result<Running> {
        let folder = room.place(self.name())?;
        let target = Target::at(free()?);
        let start = match self {
            Self::Direct => return Ok(Running::nothing(Target::at(([127, 0, 0, 1], backend).into()))),
            Self::Mooring => return Ok(Door::alone(&room.door, &folder, backend).await?.running),
            Self::Bare => bare(target, backend)?,
            Self::Nginx => nginx(&folder, target, &[backend], "")?,
            Self::Envoy => envoy(&folder, target, &[backend], &[])?,
            Self::Haproxy => haproxy(&folder, target, &[backend], "")?,
            Self::McpProxy => mcp_proxy(&folder, target, backend)?,
        };
        Running::start(start, &folder).await
    }
}

fn bare(target: Target, backend: u16) -> Result<Start> {
    let arguments = words(&[&target.address.to_string(), &format!("127.0.0.1:{backend}"), &target.key]);
    Ok(Start { program: product::program(BARE)?, arguments, target })
}

fn mcp_proxy(folder: &Path, target: Target, backend: u16) -> Result<Start> {
    let config = format!(
        "[proxy]
name = \"bench\"
separator = \"/\"
[proxy.listen]
host = \"{}\"
port = {}
[[backends]]
name = \"echo\"
transport = \"http\"
url = \"http://127.0.0.1:{backend}/mcp\"
",
        target.address.ip(),
        target.address.port()
    );
    let file = write(folder, "proxy.toml", &config)?;
    let target = Target { path: "/", tool: "echo/echo", ..target };
    Ok(Start { program: proxies::mcp_proxy()?, arguments: words(&["--config", &file]), target })
}
