//! The machine's kernel and its root file system: busybox, the tools that the tests call, the
//! libraries they link to, the kernel's modules, and systemd with a bus.

use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::judges::command::{command, output, run, sh, text};

/// Another OCI runtime, the loader of AppArmor profiles, systemd and a bus. Unpacked, not installed.
const PACKAGES: [&str; 9] = [
    "crun",
    "libyajl2",
    "apparmor",
    "systemd",
    "libsystemd-shared",
    "libapparmor1",
    "dbus-daemon",
    "libdbus-1-3",
    "libcap-ng0",
];
const MODULES: [&str; 13] = [
    "virtio_pci",
    "virtio_blk",
    "ext4",
    "overlay",
    "veth",
    "bridge",
    "nf_tables",
    "nft_compat",
    "nft_chain_nat",
    "ip_tables",
    "xt_comment",
    "xt_mark",
    "dummy",
];
const FOLDERS: [&str; 16] = [
    "bin",
    "sbin",
    "etc",
    "proc",
    "sys",
    "dev",
    "run",
    "tmp",
    "root",
    "var/lib",
    "tests/deps",
    "tests/examples",
    "usr/bin",
    "usr/sbin",
    "usr/lib",
    "lib64",
];
/// Scripts and units of the machine.
const INIT: &str = include_str!("init.sh");
const STAGE: &str = include_str!("stage.sh");
const RUN_TESTS: &str = include_str!("run-tests.sh");
const BUS: &str = include_str!("bus.conf");
const BUS_UNIT: &str = include_str!("dbus.service");
const TESTS_UNIT: &str = include_str!("tests.service");

pub struct Machine<'a> {
    /// The example that the tests drive, and the tests.
    pub program: PathBuf,
    pub tests: PathBuf,
    /// Where the kernel and packages are kept, and what is removed afterwards.
    pub folder: &'a Path,
    pub work: &'a Path,
    pub filter: String,
}

pub struct Kernel {
    pub version: String,
    pub image: PathBuf,
    /// Where its package is unpacked.
    folder: PathBuf,
}

impl Machine<'_> {
    pub fn kernel(&self) -> Result<Kernel> {
        let depends = output(&mut command(&[
            "apt-cache",
            "depends",
            "linux-image-cloud-amd64",
        ]))?;
        let package = depends
            .lines()
            .filter_map(|line| line.trim().strip_prefix("Depends: "))
            .find(|name| is_kernel(name))
            .context("the package of Debian's cloud kernel")?;
        let version = package.trim_start_matches("linux-image-").to_string();
        let folder = self.folder.join(&version);
        if !folder.join("lib/modules").join(&version).is_dir() {
            self.download(&[package], &folder)?;
            sh(&["depmod", "-b", text(&folder)?, &version])?;
        }
        Ok(Kernel {
            image: folder.join(format!("boot/vmlinuz-{version}")),
            version,
            folder,
        })
    }

    pub fn packages(&self) -> Result<PathBuf> {
        let unpacked = self.folder.join("packages-2");
        if !unpacked.is_dir() {
            let new = self.folder.join("packages-2.new");
            self.download(&PACKAGES, &new)?;
            std::fs::rename(new, &unpacked)?;
        }
        Ok(unpacked)
    }

    fn download(&self, packages: &[&str], to: &Path) -> Result<()> {
        run(Command::new("apt-get")
            .args(["download", "-qq"])
            .args(packages)
            .current_dir(self.work))?;
        for entry in std::fs::read_dir(self.work)? {
            let file = entry?.path();
            if file.extension().is_some_and(|ending| ending == "deb") {
                sh(&["dpkg-deb", "-x", text(&file)?, text(to)?])?;
                std::fs::remove_file(file)?;
            }
        }
        Ok(())
    }

    pub fn initramfs(&self, kernel: &Kernel, packages: &Path) -> Result<PathBuf> {
        let root = self.work.join("root");
        for folder in FOLDERS {
            std::fs::create_dir_all(root.join(folder))?;
        }
        let installer = Installer {
            root: &root,
            packages,
        };
        self.install(&installer)?;
        installer.modules(kernel)?;
        self.configure(&root)?;
        let file = self.folder.join("initramfs");
        let pack = format!(
            "cd '{}' && find . | cpio -o -H newc --quiet | gzip -1 > '{}'",
            text(&root)?,
            text(&file)?
        );
        sh(&["bash", "-o", "pipefail", "-c", &pack])?;
        Ok(file)
    }

    fn install(&self, installer: &Installer<'_>) -> Result<()> {
        let packages = installer.packages;
        for (program, to) in [
            ("busybox", "/bin/busybox"),
            ("runc", "/usr/sbin/runc"),
            ("ip", "/sbin/ip"),
        ] {
            let path = which(program).with_context(|| format!("{program} is not installed"))?;
            installer.program(&path, to)?;
        }
        if let Some(path) = which("iptables") {
            installer.program(&path, "/usr/sbin/iptables")?;
        }
        for plugin in [
            "bridge",
            "host-local",
            "loopback",
            "portmap",
            "firewall",
            "tuning",
        ] {
            let path = format!("/usr/lib/cni/{plugin}");
            installer.program(Path::new(&path), &path)?;
        }
        for (from, to) in [
            ("usr/bin/crun", "/usr/bin/crun"),
            ("sbin/apparmor_parser", "/sbin/apparmor_parser"),
            ("lib/systemd/systemd", "/lib/systemd/systemd"),
            ("usr/bin/dbus-daemon", "/usr/bin/dbus-daemon"),
        ] {
            installer.program(&packages.join(from), to)?;
        }
        for file in [
            "etc/apparmor/parser.conf",
            "usr/share/apparmor-features/features",
        ] {
            let to = installer.root.join(file);
            std::fs::create_dir_all(to.parent().context("a folder")?)?;
            std::fs::copy(packages.join(file), to)?;
        }
        installer.program(&self.program, "/tests/examples/node")?;
        installer.program(&self.tests, "/tests/deps/node")?;
        for program in ["tests/examples/node", "tests/deps/node"] {
            sh(&[
                "strip",
                "--strip-debug",
                text(&installer.root.join(program))?,
            ])?;
        }
        let bin = installer.root.join("bin");
        let busybox = bin.join("busybox");
        for applet in output(Command::new(&busybox).arg("--list"))?.lines() {
            if bin.join(applet).symlink_metadata().is_err() {
                symlink("/bin/busybox", bin.join(applet))?;
            }
        }
        std::fs::copy(&busybox, installer.root.join("usr/bin/busybox"))?;
        Ok(())
    }

    fn configure(&self, root: &Path) -> Result<()> {
        let units = root.join("etc/systemd/system");
        std::fs::create_dir_all(&units)?;
        let tests = RUN_TESTS
            .replace("MODULES", &MODULES.join(" "))
            .replace("FILTER", &self.filter);
        for (name, text) in [
            ("init", INIT),
            ("stage", STAGE),
            ("run-tests", tests.as_str()),
        ] {
            std::fs::write(root.join(name), text)?;
            let executable = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(root.join(name), executable)?;
        }
        for (file, text) in [
            ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"),
            ("etc/group", "root:x:0:\n"),
            ("etc/machine-id", ""),
            ("etc/bus.conf", BUS),
        ] {
            std::fs::write(root.join(file), text)?;
        }
        for (unit, text) in [
            (
                "default.target",
                "[Unit]\nDefaultDependencies=no\nRequires=tests.service\n",
            ),
            (
                "dbus.socket",
                "[Unit]\nDefaultDependencies=no\n[Socket]\nListenStream=/run/dbus/system_bus_socket\n",
            ),
            ("dbus.service", BUS_UNIT),
            ("tests.service", TESTS_UNIT),
        ] {
            std::fs::write(units.join(unit), text)?;
        }
        Ok(())
    }
}

struct Installer<'a> {
    root: &'a Path,
    packages: &'a Path,
}

impl Installer<'_> {
    /// A program with the libraries it links to; those of the packages go to the usual places.
    fn program(&self, source: &Path, destination: &str) -> Result<()> {
        self.copy(source, destination)?;
        let libraries = self.packages.join("usr/lib/x86_64-linux-gnu");
        let search = format!(
            "{0}:{0}/systemd:{1}/lib/x86_64-linux-gnu",
            text(&libraries)?,
            text(self.packages)?
        );
        // A static program has no list, and that is no failure.
        let list = Command::new("ldd")
            .arg(source)
            .env("LD_LIBRARY_PATH", search)
            .stderr(Stdio::null())
            .output()?;
        for library in paths(&String::from_utf8_lossy(&list.stdout)) {
            let inside = library
                .strip_prefix(text(self.packages)?)
                .unwrap_or(&library);
            if !self.root.join(inside.trim_start_matches('/')).exists() {
                self.copy(Path::new(&library), inside)?;
            }
        }
        Ok(())
    }

    fn copy(&self, source: &Path, destination: &str) -> Result<()> {
        let to = self.root.join(destination.trim_start_matches('/'));
        std::fs::create_dir_all(to.parent().context("a folder")?)?;
        std::fs::copy(source, &to).with_context(|| source.display().to_string())?;
        Ok(())
    }

    fn modules(&self, kernel: &Kernel) -> Result<()> {
        let folder = Path::new("lib/modules").join(&kernel.version);
        std::fs::create_dir_all(self.root.join(&folder))?;
        for list in ["dep", "alias", "symbols", "builtin", "order"] {
            let file = folder.join(format!("modules.{list}"));
            let _ = std::fs::copy(kernel.folder.join(&file), self.root.join(&file));
        }
        let mut files = BTreeSet::new();
        for module in MODULES {
            let shown = Command::new("modprobe")
                .args(["-d", text(&kernel.folder)?, "-S", &kernel.version])
                .args(["--show-depends", module])
                .stderr(Stdio::null())
                .output()?;
            files.extend(module_files(&String::from_utf8_lossy(&shown.stdout)));
        }
        ensure!(!files.is_empty(), "the kernel has none of the modules");
        let kept = text(&kernel.folder)?;
        for file in files {
            let inside = file.strip_prefix(kept).unwrap_or(&file).to_string();
            self.copy(Path::new(&file), &inside)?;
        }
        Ok(())
    }
}

/// "linux-image-6.1.0-38-cloud-amd64", and not a package that only depends on it.
fn is_kernel(package: &str) -> bool {
    package
        .strip_prefix("linux-image-")
        .is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_digit()))
}

/// The program of this name on the PATH.
fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// Paths in the list of `ldd`: words that begin with a slash.
fn paths(list: &str) -> Vec<String> {
    list.split_whitespace()
        .filter(|word| word.starts_with('/'))
        .map(str::to_string)
        .collect()
}

/// Files in lines such as "insmod /lib/modules/6.1/kernel/fs/ext4.ko".
fn module_files(shown: &str) -> Vec<String> {
    shown
        .lines()
        .filter_map(|line| line.strip_prefix("insmod "))
        .filter_map(|rest| rest.split_whitespace().next())
        .map(str::to_string)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_tools_are_read() {
        assert!(is_kernel("linux-image-6.1.0-38-cloud-amd64"));
        assert!(!is_kernel("linux-image-cloud-amd64"));
        assert_eq!(
            paths("libc.so.6 => /lib/libc.so.6 (0x1)\n/lib64/ld.so (0x2)\nlinux-vdso.so.1 (0x3)"),
            ["/lib/libc.so.6", "/lib64/ld.so"]
        );
        assert_eq!(
            module_files("builtin x\ninsmod /lib/modules/6.1/ext4.ko \n"),
            ["/lib/modules/6.1/ext4.ko"]
        );
    }

    #[test]
    fn scripts_have_their_places_filled() {
        assert!(RUN_TESTS.contains("MODULES") && RUN_TESTS.contains("FILTER"));
        assert!(INIT.starts_with("#!/bin/sh\n") && STAGE.starts_with("#!/bin/sh\n"));
    }
}
