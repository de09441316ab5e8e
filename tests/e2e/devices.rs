//! Raw block volumes: a pod reads and writes the device itself.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::stat::{major, minor};

use crate::cluster::Cluster;

/// A block device for one test; a loop device where the machine allows it.
struct Disk {
    device: PathBuf,
    file: Option<PathBuf>,
    _directory: tempfile::TempDir,
}

impl Disk {
    fn new() -> Disk {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("disk.img");
        let mut content = vec![0; 1 << 20];
        content[..4].copy_from_slice(b"BOAT");
        std::fs::write(&file, content).expect("a file");
        let attached = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(&file)
            .output();
        if let Ok(output) = attached
            && output.status.success()
        {
            let device = String::from_utf8(output.stdout).expect("a name");
            return Disk {
                device: PathBuf::from(device.trim()),
                file: Some(file),
                _directory: directory,
            };
        }
        // A device node without a device.
        let device = directory.path().join("disk");
        let made = Command::new("mknod")
            .arg(&device)
            .args(["b", "7", "250"])
            .status();
        assert!(made.expect("mknod runs").success());
        Disk {
            device,
            file: None,
            _directory: directory,
        }
    }

    /// Major and minor number, as `stat` prints them.
    fn numbers(&self) -> String {
        let metadata = std::fs::metadata(&self.device).expect("a device");
        assert!(metadata.file_type().is_block_device());
        let number = metadata.rdev();
        format!("{:x}:{:x}", major(number), minor(number))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.file.is_some() {
            let detached = Command::new("losetup").arg("-d").arg(&self.device).status();
            assert!(detached.is_ok_and(|status| status.success()) || std::thread::panicking());
        }
    }
}

fn objects(device: &Path, node: &str, script: &str) -> String {
    format!(
        r#"
apiVersion: v1
kind: PersistentVolume
metadata: {{name: disk}}
spec:
  capacity: {{storage: 1Mi}}
  accessModes: [ReadWriteOnce]
  volumeMode: Block
  storageClassName: by-hand
  local: {{path: {}}}
  nodeAffinity:
    required:
      nodeSelectorTerms:
      - matchExpressions: [{{key: kubernetes.io/hostname, operator: In, values: [{node}]}}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: disk}}
spec:
  accessModes: [ReadWriteOnce]
  volumeMode: Block
  storageClassName: by-hand
  resources: {{requests: {{storage: 1Mi}}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: user}}
spec:
  restartPolicy: Never
  containers:
  - name: c
    image: coracle-test:1
    command: [sh, -c, '{script}']
    volumeDevices: [{{name: v, devicePath: /dev/xvda}}]
  volumes: [{{name: v, persistentVolumeClaim: {{claimName: disk}}}}]
"#,
        device.display()
    )
}

#[test]
fn a_container_reads_and_writes_a_raw_block_volume() {
    let disk = Disk::new();
    let cluster = Cluster::start();
    let node = cluster.kubectl(&["get", "nodes", "-o", "jsonpath={.items[0].metadata.name}"]);
    let mut script = "set -e; test -b /dev/xvda; stat -c %t:%T /dev/xvda".to_string();
    if disk.file.is_some() {
        script.push_str("; head -c 4 /dev/xvda; printf DONE | dd of=/dev/xvda conv=fsync,notrunc");
    }
    cluster.apply(&objects(&disk.device, node.trim(), &script));
    cluster.wait_for_phase("user", "Succeeded");
    let log = cluster.kubectl(&["logs", "user"]);
    assert!(log.contains(&disk.numbers()), "{log}");
    if let Some(file) = &disk.file {
        assert!(log.contains("BOAT"), "{log}");
        let content = std::fs::read(file).expect("the file");
        assert_eq!(&content[..4], b"DONE");
    }
}
