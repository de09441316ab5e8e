//! Mounting and unmounting below a pod's directory.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use files::mount_table::{self, mount_points_below};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::{Error, at};

/// Mounts a tmpfs unless one is there. Returns whether it did.
pub fn mount_tmpfs(path: &Path, size: Option<i64>) -> Result<bool, Error> {
    if is_mount_point(path)? {
        return Ok(false);
    }
    let mut options = String::from("mode=0777");
    if let Some(size) = size {
        options.push_str(&format!(",size={size}"));
    }
    mount(
        Some("tmpfs"),
        path,
        Some("tmpfs"),
        MsFlags::empty(),
        Some(options.as_str()),
    )
    .map_err(|errno| at("mounting a tmpfs on", path)(errno.into()))?;
    Ok(true)
}

/// Mounts a tmpfs for what must not reach a disk, not by way of swap either where the kernel can
/// promise that (6.4 and later), unless one is there.
pub fn mount_secret_tmpfs(path: &Path, size: i64) -> Result<(), Error> {
    if is_mount_point(path)? {
        return Ok(());
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    let options = format!("mode=0777,size={size}");
    let on = |options: &str| mount(Some("tmpfs"), path, Some("tmpfs"), flags, Some(options));
    on(&format!("{options},noswap"))
        .or_else(|_| on(&options))
        .map_err(|errno| at("mounting a tmpfs on", path)(errno.into()))
}

/// Mounts huge pages of a size unless something is mounted there. Returns whether it did.
pub fn mount_huge_pages(path: &Path, page: &str) -> Result<bool, Error> {
    if is_mount_point(path)? {
        return Ok(false);
    }
    // The kernel writes sizes with one letter.
    let options = format!("pagesize={}", page.trim_end_matches('i'));
    mount(
        Some("nodev"),
        path,
        Some("hugetlbfs"),
        MsFlags::empty(),
        Some(options.as_str()),
    )
    .map_err(|errno| at("mounting huge pages on", path)(errno.into()))?;
    Ok(true)
}

/// Unmounts everything at or below `directory`, the deepest first.
pub fn unmount_below(directory: &Path) -> Result<(), Error> {
    let directory = fs::canonicalize(directory).map_err(at("resolving", directory))?;
    let mut points =
        mount_points_below(&directory).map_err(at("reading", Path::new(mount_table::PATH)))?;
    points.sort_by_key(|point| std::cmp::Reverse(point.components().count()));
    for point in points {
        umount2(&point, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW)
            .map_err(|errno| at("unmounting", &point)(errno.into()))?;
    }
    Ok(())
}

pub fn is_mount_point(path: &Path) -> Result<bool, Error> {
    let own = fs::symlink_metadata(path).map_err(at("reading", path))?;
    let parent = path.parent().unwrap_or(Path::new("/"));
    let above = fs::metadata(parent).map_err(at("reading", parent))?;
    Ok(own.dev() != above.dev())
}
