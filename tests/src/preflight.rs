//! What a cluster needs of the machine: says what is missing, in words, and installs what Debian can give.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};

use crate::{Level, command, progress};

/// A program, the Debian package that has it, and what it is for.
struct Need {
    program: &'static str,
    package: &'static str,
    why: &'static str,
}

const fn need(program: &'static str, package: &'static str, why: &'static str) -> Need {
    Need { program, package, why }
}

const CONTROL_PLANE: &[Need] = &[
    need("ip", "iproute2", "gives the cluster its own network"),
    need("nsenter", "util-linux", "runs commands inside the cluster"),
    need("python3", "python3-venv", "fetches packages with pip"),
];

const NODE: &[Need] = &[
    need("containerd", "containerd", "runs the containers"),
    need("runc", "runc", "runs the containers"),
    need("/usr/lib/cni/bridge", "containernetworking-plugins", "gives pods their network"),
    need("nft", "nftables", "lets kube-proxy route Services"),
    need("iptables", "iptables", "lets kube-router enforce NetworkPolicy"),
    need("ipset", "ipset", "lets kube-router enforce NetworkPolicy"),
    need("conntrack", "conntrack", "lets kube-proxy drop stale connections"),
    need("npm", "npm", "fetches packages for the images"),
    need("cc", "gcc", "builds the pause image"),
];

/// Checks everything that this level needs. Missing packages are installed where that is possible; the error names all that is
/// left and what to do about it.
pub fn check(level: Level) -> Result<()> {
    let mut lacks = Vec::new();
    if cfg!(not(target_os = "linux")) {
        bail!("a local cluster needs Linux. Set MOORING_TEST_KUBECONFIG to use a cluster that is already there.");
    }
    if !is_root() {
        lacks.push(
            "you are not root: namespaces, mounts and cgroups of a cluster need it; run the command with sudo".into(),
        );
    }
    if find("go").is_none() {
        lacks.push("`go` is not on the PATH: it builds Kubernetes; install Go 1.26 or newer".into());
    }
    let mut needs: Vec<&Need> = CONTROL_PLANE.iter().collect();
    if level == Level::Node {
        needs.extend(NODE);
    }
    needs.retain(|need| find(need.program).is_none());
    if !needs.is_empty() && is_root() && find("apt-get").is_some() {
        let mut packages: Vec<&str> = needs.iter().map(|need| need.package).collect();
        packages.dedup();
        if let Err(error) = install(&packages) {
            lacks.push(format!("apt-get could not install {}: {error:#}", packages.join(" ")));
        }
        needs.retain(|need| find(need.program).is_none());
    }
    for Need { program, package, why } in needs {
        lacks.push(format!("`{program}` is missing (Debian: {package}): it {why}"));
    }
    if level == Level::Node && !std::path::Path::new("/sys/fs/cgroup").is_dir() {
        lacks.push("/sys/fs/cgroup is not mounted: the kubelet limits pods with it".into());
    }
    if lacks.is_empty() {
        return Ok(());
    }
    bail!(
        "this machine lacks what a local cluster needs:\n- {}\nOr set MOORING_TEST_KUBECONFIG to use a cluster that is already there.",
        lacks.join("\n- ")
    );
}

/// Brings apt's lists, once for each process, when there are none.
pub(crate) fn apt_lists() -> Result<()> {
    static DONE: std::sync::Mutex<bool> = std::sync::Mutex::new(false);
    let mut done = DONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !*done {
        command::run(Command::new("apt-get").args(["-qq", "update"]))?;
        *done = true;
    }
    Ok(())
}

/// Installs packages of Debian.
pub fn install(packages: &[&str]) -> Result<()> {
    progress::step(&format!("Installing {}", packages.join(" ")), || {
        apt_lists()?;
        let mut install = Command::new("apt-get");
        install.env("DEBIAN_FRONTEND", "noninteractive");
        install.args(["-qq", "-y", "--no-install-recommends", "install"]).args(packages);
        command::run(&mut install)?;
        Ok(())
    })
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0)
}

/// Whether a program is on the PATH, or at an absolute path.
pub fn has(program: &str) -> bool {
    find(program).is_some()
}

fn find(program: &str) -> Option<PathBuf> {
    if program.starts_with('/') {
        return Some(PathBuf::from(program)).filter(|path| path.exists());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|candidate| candidate.is_file())
}
