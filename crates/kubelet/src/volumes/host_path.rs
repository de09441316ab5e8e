//! hostPath volumes: a path of the node itself, checked and if asked for created.

use std::{
    fs,
    os::unix::fs::{FileTypeExt, PermissionsExt},
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::HostPathVolumeSource;

use super::{Error, at, blocking};

pub(super) async fn set_up(source: &HostPathVolumeSource) -> Result<PathBuf, Error> {
    let path = PathBuf::from(&source.path);
    let type_ = source.type_.clone().unwrap_or_default();
    blocking(move || {
        check(&path, &type_)?;
        Ok(path)
    })
    .await
}

fn check(path: &Path, type_: &str) -> Result<(), Error> {
    let found = fs::metadata(path).ok().map(|metadata| metadata.file_type());
    let is = |test: &dyn Fn(&fs::FileType) -> bool| found.as_ref().is_some_and(test);
    let failed = |what: &str| {
        Err(Error::HostPath(format!(
            "hostPath type check failed: {} is not {what}",
            path.display()
        )))
    };
    match type_ {
        "" => Ok(()),
        "DirectoryOrCreate" => {
            if found.is_none() {
                fs::create_dir_all(path).map_err(at("creating", path))?;
                set_mode(path, 0o755)?;
                return Ok(());
            }
            if is(&|kind| kind.is_dir()) {
                Ok(())
            } else {
                failed("a directory")
            }
        }
        "FileOrCreate" => {
            if found.is_none() {
                fs::File::create(path).map_err(at("creating", path))?;
                set_mode(path, 0o644)?;
                return Ok(());
            }
            if is(&|kind| kind.is_file()) {
                Ok(())
            } else {
                failed("a file")
            }
        }
        "Directory" if !is(&|kind| kind.is_dir()) => failed("a directory"),
        "File" if !is(&|kind| kind.is_file()) => failed("a file"),
        "Socket" if !is(&|kind| kind.is_socket()) => failed("a socket file"),
        "CharDevice" if !is(&|kind| kind.is_char_device()) => failed("a character device"),
        "BlockDevice" if !is(&|kind| kind.is_block_device()) => failed("a block device"),
        "Directory" | "File" | "Socket" | "CharDevice" | "BlockDevice" => Ok(()),
        other => Err(Error::HostPath(format!(
            "{other} is an invalid volume type"
        ))),
    }
}

fn set_mode(path: &Path, mode: u32) -> Result<(), Error> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(at("changing", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_checked_and_created() {
        let directory = tempfile::tempdir().expect("a directory");
        let new = directory.path().join("new");
        assert!(check(&new, "Directory").is_err());
        check(&new, "DirectoryOrCreate").expect("created");
        check(&new, "Directory").expect("there");
        assert_eq!(
            check(&new, "File").expect_err("no file").to_string(),
            format!(
                "hostPath type check failed: {} is not a file",
                new.display()
            )
        );
        check(Path::new("/dev/null"), "CharDevice").expect("a device");
    }
}
