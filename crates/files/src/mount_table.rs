//! The mount points of `/proc/self/mountinfo`.
//!
//! The `procfs` crate would read it too, but reads every field of every line and gives up at the
//! first path that is not UTF-8; whoever cleans up must see all the others.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

/// The table of the mounts that this process sees.
pub const PATH: &str = "/proc/self/mountinfo";

/// All mount points at or below `directory`, in the order in which they were mounted.
pub fn mount_points_below(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut points = mount_points(&fs::read(PATH)?);
    points.retain(|point| point.starts_with(directory));
    Ok(points)
}

/// All mount points of a table.
pub fn mount_points(table: &[u8]) -> Vec<PathBuf> {
    table
        .split(|byte| *byte == b'\n')
        .filter_map(|line| line.split(|byte| *byte == b' ').nth(4))
        .map(unescape)
        .collect()
}

/// A path of the table: the kernel writes blanks, tabs, line ends and backslashes as a backslash
/// and three octal digits.
pub fn unescape(field: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let byte = match (first, after) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..]) => {
                Some((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'))
            }
            _ => None,
        };
        path.push(byte.unwrap_or(*first));
        rest = match byte {
            Some(_) => &after[3..],
            None => after,
        };
    }
    PathBuf::from(OsString::from_vec(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_undone() {
        for (field, path) in [
            ("plain", "plain"),
            (r"/a\040b\134c", r"/a b\c"),
            (r"/tab\011and\012line", "/tab\tand\nline"),
            (r"/not\04", r"/not\04"),
            (r"/not\900", r"/not\900"),
            (r"/end\", r"/end\"),
            (r"/twice\134040", r"/twice\040"),
        ] {
            assert_eq!(unescape(field.as_bytes()), Path::new(path), "{field}");
        }
    }

    #[test]
    fn the_fifth_field_is_the_mount_point() {
        let table = b"36 35 98:0 / /mnt/a\\040b rw - ext3 /dev/root rw\n\
            37 35 98:0 / /mnt/\xff rw - ext3 /dev/root rw\nbroken\n";
        let points = mount_points(table);
        assert_eq!(points[0], Path::new("/mnt/a b"));
        assert_eq!(points[1].as_os_str().len(), 6);
        assert_eq!(points.len(), 2);
    }

    #[test]
    fn this_process_has_mounts() {
        let points = mount_points_below(Path::new("/")).unwrap();
        assert!(!points.is_empty());
        assert!(
            mount_points_below(Path::new("/no/such/place"))
                .unwrap()
                .is_empty()
        );
    }
}
