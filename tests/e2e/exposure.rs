//! Other users of the machine cannot read anything of a cluster.

use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cluster::{Cluster, eventually, with_input};

const NOBODY: u32 = 65534;

#[test]
fn other_users_cannot_read_the_data_and_run_directories() {
    let cluster = Cluster::prepared();
    // As if an earlier version, or the user, had created them.
    for open in [cluster.data_dir().parent(), Some(&cluster.data_dir())] {
        fs::set_permissions(open.expect("a directory"), Permissions::from_mode(0o755)).unwrap();
    }
    cluster.up(&[]);
    cluster.apply(
        r#"
apiVersion: v1
kind: Secret
metadata: {name: password}
stringData: {password: hunter2}
---
apiVersion: v1
kind: Pod
metadata: {name: closed}
spec:
  securityContext: {runAsUser: 1000, fsGroup: 2000}
  containers:
  - name: c
    image: coracle-test:1
    command: [sh, -c, "id > /scratch/id; cat /password/password; echo; sleep 1000"]
    env: [{name: PASSWORD, valueFrom: {secretKeyRef: {name: password, key: password}}}]
    volumeMounts: [{name: password, mountPath: /password}, {name: scratch, mountPath: /scratch}]
  volumes: [{name: password, secret: {secretName: password}}, {name: scratch, emptyDir: {}}]
"#,
    );
    cluster.wait_ready("closed");
    expect_log(&cluster, "closed");
    assert_eq!(reachable_to_other_users(&cluster), Vec::<String>::new());
    cluster.apply(
        r#"
apiVersion: v1
kind: Pod
metadata: {name: mapped}
spec:
  hostUsers: false
  containers:
  - name: c
    image: coracle-test:1
    command: [sh, -c, "cat /password/password; echo; sleep 1000"]
    volumeMounts: [{name: password, mountPath: /password}]
  volumes: [{name: password, secret: {secretName: password}}]
"#,
    );
    cluster.wait_ready("mapped");
    expect_log(&cluster, "mapped");
    // The pod's users need search permission on these, but cannot list them.
    let run = format!("/run/coracle/{}", cluster.id());
    let passage = ["", "/runtime", "/runtime/mapped"].map(|part| format!("x {run}{part}"));
    let found = reachable_to_other_users(&cluster);
    assert!(
        found.iter().all(|path| passage.contains(path)),
        "{found:#?}"
    );
}

/// The pod itself can read its Secret.
fn expect_log(cluster: &Cluster, pod: &str) {
    eventually("the password in the log", || {
        let log = cluster.kubectl(&["logs", pod]);
        (log.trim() == "hunter2").then_some(())
    });
}

/// Everything that other users can read, write (or connect to), or execute (or search).
fn reachable_to_other_users(cluster: &Cluster) -> Vec<String> {
    let run = PathBuf::from("/run/coracle").join(cluster.id());
    let mut paths = b"/run/coracle/claims.json\n".to_vec();
    let mut count = 0;
    let mut open = vec![cluster.data_dir(), run];
    while let Some(path) = open.pop() {
        paths.extend_from_slice(path.as_os_str().as_bytes());
        paths.push(b'\n');
        count += 1;
        open.extend(children(&path));
    }
    assert!(count > 200, "only {count} paths");
    let script = "while IFS= read -r path; do for right in r w x; do \
                  test -$right \"$path\" && echo \"$right $path\"; done; done; true";
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]).uid(NOBODY).gid(NOBODY);
    let list = String::from_utf8_lossy(&paths).into_owned();
    let said = with_input(&mut command, &list, true);
    said.lines().map(str::to_owned).collect()
}

/// Does not follow links, and ignores files that disappear meanwhile.
fn children(path: &Path) -> Vec<PathBuf> {
    if !fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
        return Vec::new();
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let links = |path: &PathBuf| fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
    let paths = entries.map(|entry| entry.path());
    paths.filter(|path| !links(path)).collect()
}
