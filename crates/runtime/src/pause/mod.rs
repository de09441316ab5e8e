//! The pause program as bytes, and the read-only root file system that holds nothing else.

use std::{fs, io, path::Path};

use files::atomic_file::{self, Options};

/// The whole program.
pub static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pause"));

/// Makes `<root>` a root file system with `/pause` and the mount points a sandbox needs. Done once
/// per state directory and shared by all sandboxes, which mount it read-only.
pub fn write_root(root: &Path) -> io::Result<()> {
    let program = root.join("pause");
    if fs::read(&program).is_ok_and(|bytes| bytes == PROGRAM) {
        return Ok(());
    }
    for directory in ["proc", "dev", "sys", "etc"] {
        fs::create_dir_all(root.join(directory))?;
    }
    atomic_file::write(&program, PROGRAM, Options::plain().mode(0o555))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_program_is_small() {
        assert!(super::PROGRAM.starts_with(b"\x7fELF"));
        assert!(
            super::PROGRAM.len() < 8192,
            "{} bytes",
            super::PROGRAM.len()
        );
    }
}
