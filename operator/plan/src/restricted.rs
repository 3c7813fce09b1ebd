//! What the *restricted* Pod Security profile forbids in security contexts, beyond what the API server's rules see. A
//! server keeps it in every namespace, not only where the cluster enforces it.

use k8s_openapi::api::core::v1::{AppArmorProfile, SELinuxOptions, SeccompProfile, WindowsSecurityContextOptions};
use mooring_api::McpServerSpec;

use crate::outcome::Rejection;
use crate::validate::invalid;

/// Sysctls that the profile allows.
const SYSCTLS: [&str; 10] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_syncookies",
];
/// SELinux types that it allows.
const SELINUX_TYPES: [&str; 5] = ["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];

/// Checks both security contexts.
pub(crate) fn check(spec: &McpServerSpec) -> Result<(), Rejection> {
    if let Some(context) = spec.pod.as_ref().and_then(|pod| pod.security_context.as_ref()) {
        let sysctls = context.sysctls.iter().flatten().map(|sysctl| &sysctl.name);
        let unsafe_sysctl = sysctls.into_iter().find(|name| !SYSCTLS.contains(&name.as_str()));
        let field = "pod.securityContext";
        if let Some(name) = unsafe_sysctl {
            return Err(refused(field, &format!("sysctl {name}")));
        }
        common(
            field,
            context.seccomp_profile.as_ref(),
            context.app_armor_profile.as_ref(),
            context.se_linux_options.as_ref(),
            context.windows_options.as_ref(),
        )?;
    }
    if let Some(context) = spec.http.as_ref().and_then(|http| http.security_context.as_ref()) {
        let field = "http.securityContext";
        if context.proc_mount.as_deref().is_some_and(|mount| mount != "Default") {
            return Err(refused(field, "procMount other than Default"));
        }
        common(
            field,
            context.seccomp_profile.as_ref(),
            context.app_armor_profile.as_ref(),
            context.se_linux_options.as_ref(),
            context.windows_options.as_ref(),
        )?;
    }
    Ok(())
}

fn common(
    field: &str,
    seccomp: Option<&SeccompProfile>,
    app_armor: Option<&AppArmorProfile>,
    se_linux: Option<&SELinuxOptions>,
    windows: Option<&WindowsSecurityContextOptions>,
) -> Result<(), Rejection> {
    if seccomp.is_some_and(|profile| profile.type_ == "Unconfined") {
        return Err(refused(field, "seccompProfile Unconfined"));
    }
    if app_armor.is_some_and(|profile| profile.type_ == "Unconfined") {
        return Err(refused(field, "appArmorProfile Unconfined"));
    }
    if windows.and_then(|options| options.host_process) == Some(true) {
        return Err(refused(field, "windowsOptions.hostProcess"));
    }
    if let Some(options) = se_linux {
        let own_type = options.type_.as_deref().is_some_and(|name| !SELINUX_TYPES.contains(&name));
        if own_type || options.user.is_some() || options.role.is_some() {
            return Err(refused(field, "seLinuxOptions with a user, a role or a type of its own"));
        }
    }
    Ok(())
}

fn refused(field: &str, what: &str) -> Rejection {
    invalid(field, format!("{what} is not allowed: the pod keeps the restricted Pod Security profile"))
}
