//! Root file systems from Debian packages, as if nothing were installed.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::Workshop;
use crate::judges::command::{command, output, run, sh, text};

const FOLDERS: [&str; 12] = [
    "usr/bin",
    "usr/sbin",
    "usr/lib",
    "usr/lib64",
    "etc",
    "tmp",
    "var/tmp",
    "run",
    "proc",
    "sys",
    "dev",
    "root",
];

/// The packages with all they depend on.
pub fn unpack(workshop: &Workshop<'_>, root: &Path, packages: &[&str]) -> Result<()> {
    let nothing = workshop.work.join("nothing");
    std::fs::write(&nothing, "")?;
    let empty = workshop.work.join("empty");
    std::fs::create_dir_all(empty.join("partial"))?;
    for folder in FOLDERS {
        std::fs::create_dir_all(root.join(folder))?;
    }
    for folder in ["tmp", "var/tmp"] {
        let open = std::fs::Permissions::from_mode(0o1777);
        std::fs::set_permissions(root.join(folder), open)?;
    }
    for folder in ["bin", "sbin", "lib", "lib64"] {
        if root.join(folder).symlink_metadata().is_err() {
            symlink(format!("usr/{folder}"), root.join(folder))?;
        }
    }
    let apt = |archives: &Path| -> Result<Command> {
        let mut apt = command(&["apt-get", "-qq", "-y", "--no-install-recommends"]);
        apt.arg("-o")
            .arg(format!("Dir::State::status={}", text(&nothing)?));
        apt.args(["-o", "Debug::NoLocking=1"]);
        apt.arg("-o")
            .arg(format!("Dir::Cache::archives={}", text(archives)?));
        Ok(apt)
    };
    run(apt(&workshop.packages)?
        .args(["--download-only", "install"])
        .args(packages))?;
    let list = output(
        apt(&empty)?
            .args(["--print-uris", "install"])
            .args(packages),
    )?;
    for file in package_files(&list) {
        extract(&workshop.packages.join(file), root)?;
    }
    let etc = root.join("etc");
    std::fs::write(
        etc.join("passwd"),
        "root:x:0:0:root:/root:/bin/sh\nwww-data:x:33:33:www-data:/var/www:/bin/false\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
    )?;
    std::fs::write(
        etc.join("group"),
        "root:x:0:\nwww-data:x:33:\nnogroup:x:65534:\n",
    )?;
    std::fs::write(etc.join("nsswitch.conf"), "hosts: files dns\n")?;
    Ok(())
}

/// Names of files in lines such as "'http://…/bash_5.2_amd64.deb' bash_5.2_amd64.deb 1234 …".
fn package_files(list: &str) -> Vec<&str> {
    list.lines()
        .filter(|line| line.starts_with('\''))
        .filter_map(|line| line.split_whitespace().nth(1))
        .collect()
}

/// The files of a package, without documentation.
fn extract(package: &Path, root: &Path) -> Result<()> {
    let mut unpacking = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(package)
        .stdout(Stdio::piped())
        .spawn()?;
    let tar = unpacking.stdout.take().context("output")?;
    let mut extracting = Command::new("tar");
    extracting
        .arg("-C")
        .arg(root)
        .arg("--keep-directory-symlink");
    for folder in ["doc", "man", "locale", "info"] {
        extracting.arg(format!("--exclude=./usr/share/{folder}/*"));
    }
    run(extracting.args(["-xf", "-"]).stdin(tar))?;
    let status = unpacking.wait()?;
    ensure!(status.success(), "{}: {status}", package.display());
    Ok(())
}

/// Busybox for every command that is not there, and a shell that keeps environment names which are
/// no identifiers (busybox' own drops them).
pub fn applets(root: &Path) -> Result<()> {
    let bin = root.join("bin");
    let exists = |path: PathBuf| path.symlink_metadata().is_ok();
    // Debian chooses between two nc by links that packages make when they are set up.
    if exists(bin.join("nc.openbsd")) {
        sh(&["ln", "-sf", "nc.openbsd", text(&bin.join("nc"))?])?;
    }
    for applet in output(Command::new(bin.join("busybox")).arg("--list"))?.lines() {
        if !exists(bin.join(applet)) && !exists(root.join("sbin").join(applet)) {
            symlink("busybox", bin.join(applet))?;
        }
    }
    let shell = match exists(bin.join("bash-static")) {
        true => "bash-static",
        false => "bash",
    };
    sh(&["ln", "-sf", shell, text(&bin.join("sh"))?])
}

/// Copies a file of Go's module cache, which is read-only, so that it can be changed.
pub fn copy_files(from: &Path, to: &Path) -> Result<()> {
    std::fs::copy(from, to).with_context(|| from.display().to_string())?;
    let mut permissions = to.metadata()?.permissions();
    permissions.set_mode(permissions.mode() | 0o200);
    std::fs::set_permissions(to, permissions)?;
    Ok(())
}

/// The plain files of a folder, in order.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

pub mod write {
    //! Adding to files.

    use std::io::Write;
    use std::path::Path;

    use anyhow::Result;

    pub fn append(file: &Path, text: &str) -> Result<()> {
        let mut file = std::fs::File::options()
            .append(true)
            .create(true)
            .open(file)?;
        file.write_all(text.as_bytes())?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_packages_are_read_from_apts_list() {
        let list = "NOTE: x\n'http://deb/bash_5.2_amd64.deb' bash_5.2_amd64.deb 1 SHA256:a\n'http://deb/c%3a1.deb' c_1%3a2_amd64.deb 2\n";
        assert_eq!(
            package_files(list),
            ["bash_5.2_amd64.deb", "c_1%3a2_amd64.deb"]
        );
    }
}
