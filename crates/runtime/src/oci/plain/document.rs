//! The parts of a bundle's `config.json` that this module understands. A bundle with anything else in
//! it is not parsed.

use std::{
    collections::HashMap,
    path::{Component, Path, PathBuf},
};

use nix::mount::MsFlags;
use oci_spec::runtime::{LinuxSeccomp, Process};
use serde::Deserialize;

pub const READ_ONLY: u64 = 1;
pub const NO_SUID: u64 = 2;
pub const NO_DEV: u64 = 4;
pub const NO_EXEC: u64 = 8;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Document {
    #[serde(rename = "ociVersion")]
    _version: String,
    pub root: RootPath,
    pub process: Process,
    mounts: Vec<Mount>,
    #[serde(default)]
    pub annotations: HashMap<String, String>,
    pub linux: Linux,
    /// The mounts, understood.
    #[serde(skip)]
    pub points: Vec<Point>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RootPath {
    pub path: PathBuf,
    #[serde(default)]
    pub readonly: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Linux {
    pub cgroups_path: String,
    pub namespaces: Vec<Namespace>,
    pub resources: Resources,
    #[serde(default)]
    pub devices: Vec<Device>,
    #[serde(default)]
    pub masked_paths: Vec<PathBuf>,
    #[serde(default)]
    pub readonly_paths: Vec<PathBuf>,
    pub seccomp: Option<LinuxSeccomp>,
    rootfs_propagation: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Namespace {
    #[serde(rename = "type")]
    pub kind: String,
    pub path: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Resources {
    #[serde(default)]
    pub devices: Vec<Rule>,
    pub cpu: Option<Cpu>,
    pub memory: Option<Memory>,
    #[serde(default)]
    pub hugepage_limits: Vec<HugePages>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HugePages {
    pub page_size: String,
    pub limit: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    pub allow: bool,
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub major: Option<i64>,
    pub minor: Option<i64>,
    #[serde(default)]
    pub access: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cpu {
    pub shares: Option<u64>,
    pub quota: Option<i64>,
    pub period: Option<u64>,
    pub cpus: Option<String>,
    pub mems: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    pub limit: Option<i64>,
    pub swap: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Device {
    pub path: PathBuf,
    #[serde(rename = "type")]
    pub kind: String,
    pub major: u64,
    pub minor: u64,
    #[serde(default = "for_everybody")]
    pub file_mode: u32,
    #[serde(default)]
    pub uid: u32,
    #[serde(default)]
    pub gid: u32,
}

fn for_everybody() -> u32 {
    0o666
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mount {
    destination: PathBuf,
    #[serde(rename = "type")]
    kind: String,
    source: PathBuf,
    #[serde(default)]
    options: Vec<String>,
}

/// A mount as it shall be made.
#[derive(Debug, PartialEq, Eq)]
pub struct Point {
    pub destination: PathBuf,
    pub what: What,
}

#[derive(Debug, PartialEq, Eq)]
pub enum What {
    /// A file system of the kernel's.
    New {
        kind: String,
        flags: MsFlags,
        data: String,
    },
    /// Something that is there already.
    Bind {
        source: PathBuf,
        /// With what is mounted below it.
        recursive: bool,
        attributes: u64,
        /// The attributes are meant for what is mounted below it, too.
        all: bool,
    },
}

impl Document {
    /// `None` means that the bundle contains something that is not understood.
    pub fn parse(bytes: &[u8]) -> Option<Document> {
        let mut document: Document = serde_json::from_slice(bytes).ok()?;
        let process = &document.process;
        let ordinary = !process.terminal().unwrap_or(false)
            && process.console_size().is_none()
            && process.selinux_label().is_none()
            && process.scheduler().is_none()
            && process.io_priority().is_none()
            && process.exec_cpu_affinity().is_none()
            && process.user().umask().is_none()
            && document.linux.rootfs_propagation.as_deref() == Some("private")
            && document.root.path.is_absolute();
        let unheard = |seccomp: &LinuxSeccomp| seccomp.listener_path().is_none();
        if !ordinary || !document.linux.seccomp.iter().all(unheard) {
            return None;
        }
        document.points = document
            .mounts
            .iter()
            .map(point)
            .collect::<Option<Vec<Point>>>()?;
        // Nodes and links go into a /dev of its own only.
        let own_dev = document.points.iter().any(|point| {
            let new = matches!(&point.what, What::New { kind, .. } if kind == "tmpfs");
            new && point.destination == Path::new("/dev")
        });
        let inside = |device: &Device| {
            let rest = device.path.strip_prefix("/dev");
            rest.is_ok_and(|rest| !rest.as_os_str().is_empty() && is_plain(rest))
                && matches!(device.kind.as_str(), "c" | "b" | "u" | "p")
        };
        (own_dev && document.linux.devices.iter().all(inside)).then_some(document)
    }
}

fn point(mount: &Mount) -> Option<Point> {
    let inside = mount.destination.strip_prefix("/").ok()?;
    if !is_plain(inside) || inside.as_os_str().is_empty() {
        return None;
    }
    let what = match mount.kind.as_str() {
        "bind" => bind(mount)?,
        kind @ ("proc" | "sysfs" | "tmpfs" | "devpts" | "mqueue") => new(kind, &mount.options)?,
        _ => return None,
    };
    Some(Point {
        destination: mount.destination.clone(),
        what,
    })
}

fn is_plain(path: &Path) -> bool {
    let mut parts = path.components();
    parts.all(|part| matches!(part, Component::Normal(_)))
}

fn new(kind: &str, options: &[String]) -> Option<What> {
    let (mut flags, mut data) = (MsFlags::empty(), Vec::new());
    for option in options {
        flags |= match option.as_str() {
            "ro" => MsFlags::MS_RDONLY,
            "rw" => MsFlags::empty(),
            "nosuid" => MsFlags::MS_NOSUID,
            "nodev" => MsFlags::MS_NODEV,
            "noexec" => MsFlags::MS_NOEXEC,
            "relatime" => MsFlags::MS_RELATIME,
            "strictatime" => MsFlags::MS_STRICTATIME,
            "newinstance" => {
                data.push(option.as_str());
                MsFlags::empty()
            }
            other => match other.split_once('=')?.0 {
                "mode" | "size" | "gid" | "uid" | "ptmxmode" | "nr_inodes" => {
                    data.push(other);
                    MsFlags::empty()
                }
                _ => return None,
            },
        };
    }
    Some(What::New {
        kind: kind.to_owned(),
        flags,
        data: data.join(","),
    })
}

fn bind(mount: &Mount) -> Option<What> {
    let (mut recursive, mut attributes, mut all) = (false, 0, false);
    for option in &mount.options {
        match option.as_str() {
            "bind" => {}
            "rbind" => recursive = true,
            "rw" | "rprivate" | "private" | "relatime" => {}
            "ro" => attributes |= READ_ONLY,
            "rro" => {
                attributes |= READ_ONLY;
                all = true;
            }
            "nosuid" => attributes |= NO_SUID,
            "nodev" => attributes |= NO_DEV,
            "noexec" => attributes |= NO_EXEC,
            _ => return None,
        }
    }
    mount.source.is_absolute().then(|| What::Bind {
        source: mount.source.clone(),
        recursive,
        attributes,
        all,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn ordinary() -> Value {
        json!({
            "ociVersion": "1.0.2", "annotations": {"a": "b"},
            "root": {"path": "/r", "readonly": true},
            "process": {"terminal": false, "user": {"uid": 1, "gid": 2, "additionalGids": [3]},
                "args": ["sleep"], "env": ["PATH=/bin"], "cwd": "/", "oomScoreAdj": 5,
                "capabilities": {"bounding": ["CAP_KILL"], "effective": [], "permitted": [],
                    "inheritable": [], "ambient": []}},
            "mounts": [
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs",
                    "options": ["nosuid", "strictatime", "mode=755", "size=65536k"]},
                {"destination": "/data", "type": "bind", "source": "/s", "options": ["rbind", "rprivate", "rro"]},
            ],
            "linux": {"cgroupsPath": "/a/b", "namespaces": [{"type": "mount"}, {"type": "pid"}],
                "resources": {"devices": [{"allow": false, "access": "rwm"}], "cpu": {"shares": 2}},
                "devices": [], "maskedPaths": ["/proc/keys"], "readonlyPaths": ["/proc/sys"],
                "rootfsPropagation": "private"},
        })
    }

    fn parse(value: &Value) -> Option<Document> {
        Document::parse(value.to_string().as_bytes())
    }

    #[test]
    fn the_bundle_of_an_ordinary_container_is_parsed() {
        let document = parse(&ordinary()).expect("ordinary");
        let data = Point {
            destination: "/data".into(),
            what: What::Bind {
                source: "/s".into(),
                recursive: true,
                attributes: READ_ONLY,
                all: true,
            },
        };
        assert_eq!(document.points[1], data);
        assert!(matches!(&document.points[0].what,
            What::New { data, .. } if data == "mode=755,size=65536k"));
    }

    #[test]
    fn a_bundle_with_unknown_parts_is_left_to_libcontainer() {
        for (pointer, value) in [
            ("/linux/rootfsPropagation", json!("slave")),
            ("/linux/uidMappings", json!([])),
            ("/linux/resources/rdma", json!({})),
            ("/linux/resources/unified", json!({})),
            ("/hooks", json!({})),
            ("/process/terminal", json!(true)),
            ("/process/selinuxLabel", json!("l")),
            ("/mounts/0/type", json!("nfs")),
            ("/mounts/0/destination", json!("/elsewhere")),
            ("/mounts/1/destination", json!("/a/../b")),
            ("/mounts/1/options", json!(["rbind", "rslave"])),
            ("/mounts/1/uidMappings", json!([])),
            (
                "/linux/devices",
                json!([{"path": "/etc/x", "type": "c", "major": 1, "minor": 3}]),
            ),
        ] {
            let mut document = ordinary();
            let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
            document.pointer_mut(parent).expect("a parent")[name
                .parse::<usize>()
                .map_or(name.to_owned(), |index| index.to_string())
                .as_str()] = value;
            assert!(parse(&document).is_none(), "{pointer}");
        }
    }
}
