//! Builds the pause program: a static ELF of a few KB without libc, embedded by `src/pause`.

use std::{env, path::PathBuf, process::Command};

fn main() {
    println!("cargo:rerun-if-changed=src/pause/program.rs");
    println!("cargo:rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("pause");
    let target = env::var("TARGET").expect("cargo sets TARGET");
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let status = Command::new(rustc)
        .args(["--edition=2024", "--crate-type=bin", "--crate-name=pause"])
        .args(["--target", &target])
        .args(["-Copt-level=z", "-Cpanic=abort", "-Cstrip=symbols"])
        .args(["-Crelocation-model=static", "-Ctarget-feature=+crt-static"])
        .args([
            "-Clink-arg=-nostartfiles",
            "-Clink-arg=-nostdlib",
            "-Clink-arg=-static",
            "-Clink-arg=-no-pie",
            "-Clink-arg=-Wl,--build-id=none",
            "-Clink-arg=-Wl,-z,noseparate-code",
            "-Clink-arg=-Wl,-z,norelro",
            "-Clink-arg=-Wl,--no-eh-frame-hdr",
        ])
        .arg("-o")
        .arg(&out)
        .arg("src/pause/program.rs")
        .status()
        .expect("rustc runs");
    assert!(status.success(), "the pause program must build");
}
