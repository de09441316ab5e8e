//! The files a pod's containers share: resolv.conf, hostname, hosts, and /dev/shm.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use cri::v1::DnsConfig;

use crate::{failpoint, sys};

/// Where they lie, below the sandbox's directory.
pub struct Files(pub PathBuf);

impl Files {
    pub fn resolv_conf(&self) -> PathBuf {
        self.0.join("resolv.conf")
    }
    pub fn hostname(&self) -> PathBuf {
        self.0.join("hostname")
    }
    pub fn hosts(&self) -> PathBuf {
        self.0.join("hosts")
    }
    pub fn own_shm(&self) -> PathBuf {
        self.0.join("shm")
    }
    /// The pod's /dev/shm, or the host's when the pod shares its IPC.
    pub fn shm(&self, host_ipc: bool) -> PathBuf {
        if host_ipc {
            PathBuf::from("/dev/shm")
        } else {
            self.own_shm()
        }
    }

    /// Writes them all. Without a DNS configuration the host's resolv.conf is copied.
    pub fn write(&self, hostname: &str, dns: Option<&DnsConfig>, host_ipc: bool) -> io::Result<()> {
        fs::create_dir_all(&self.0)?;
        let resolv_conf = match dns {
            Some(dns) if *dns != DnsConfig::default() => resolv_conf(dns),
            _ => fs::read_to_string("/etc/resolv.conf").unwrap_or_default(),
        };
        let hosts = fs::read("/etc/hosts").unwrap_or_default();
        write_readable(&self.resolv_conf(), resolv_conf.as_bytes())?;
        write_readable(&self.hostname(), format!("{hostname}\n").as_bytes())?;
        write_readable(&self.hosts(), &hosts)?;
        if !host_ipc {
            fs::create_dir_all(self.own_shm())?;
            failpoint::reach("a pod's files are written");
            sys::mount_tmpfs(&self.own_shm(), "mode=1777,size=65536k")?;
        }
        Ok(())
    }

    pub fn unmount(&self) -> io::Result<()> {
        failpoint::reach("before a pod's shared memory is unmounted");
        sys::unmount(&self.own_shm())?;
        failpoint::reach("a pod's shared memory is unmounted");
        Ok(())
    }
}

/// For everybody in the pod, regardless of our umask.
fn write_readable(path: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::write(path, bytes)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644))
}

fn resolv_conf(dns: &DnsConfig) -> String {
    let mut text = String::new();
    if !dns.searches.is_empty() {
        text.push_str(&format!("search {}\n", dns.searches.join(" ")));
    }
    for server in &dns.servers {
        text.push_str(&format!("nameserver {server}\n"));
    }
    if !dns.options.is_empty() {
        text.push_str(&format!("options {}\n", dns.options.join(" ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolv_conf_has_the_usual_form() {
        let dns = DnsConfig {
            servers: vec!["10.96.0.10".into()],
            searches: vec!["a.svc.cluster.local".into(), "cluster.local".into()],
            options: vec!["ndots:5".into()],
        };
        assert_eq!(
            resolv_conf(&dns),
            "search a.svc.cluster.local cluster.local\nnameserver 10.96.0.10\noptions ndots:5\n"
        );
    }
}
