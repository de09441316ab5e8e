//! Runs the runtime's end-to-end tests in a virtual machine with unified cgroups (v2) and AppArmor:
//! Debian's cloud kernel in qemu, with a root file system in memory made from this machine's
//! packages. Twice: with directories as cgroups and busybox as init, and with systemd making the
//! cgroups (and being init, with Debian's D-Bus daemon). Software emulation suffices. Tests that
//! need an image registry are left out: they do not depend on cgroups, and the machine has no
//! network. The result comes over the serial console.

mod root;

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::cleanup::Cleanup;
use super::command::{command, output, run, sh, text};
use super::setting::{Setting, variable};

pub const USAGE: &str = "cargo xtask test-vm
FILTER: tests to run; DRIVER=cgroupfs|systemd: one machine only; LIMIT: seconds per machine;
ACCEL=kvm: faster where it works";

const DRIVERS: [&str; 2] = ["cgroupfs", "systemd"];

pub fn main(repository: &Path, arguments: &[&str]) -> Result<()> {
    ensure!(arguments.is_empty(), "{USAGE}");
    let driver = variable("DRIVER");
    let drivers = drivers(driver.as_deref())?;
    let setting = Setting::new(repository);
    run(setting.script("setup").arg("vm"))?;
    let folder = setting.target().join("vm");
    std::fs::create_dir_all(&folder)?;
    let mut cleanup = Cleanup::start()?;
    let work = PathBuf::from(output(&mut command(&["mktemp", "-d"]))?);
    cleanup.run(&["rm", "-rf", text(&work)?])?;

    // 1. The tests and the program they drive.
    let cargo = || {
        let mut cargo = Command::new("cargo");
        cargo.current_dir(repository);
        cargo
    };
    run(cargo().args(["build", "--locked", "-p", "runtime", "--example", "node"]))?;
    let tests = test_program(cargo())?;

    // 2. Debian's kernel, and packages that this machine need not have. 3. The root file system.
    let machine = root::Machine {
        program: setting.target().join("debug/examples/node"),
        tests,
        folder: &folder,
        work: &work,
        filter: variable("FILTER").unwrap_or_default(),
    };
    let kernel = machine.kernel()?;
    let packages = machine.packages()?;
    let initramfs = machine.initramfs(&kernel, &packages)?;

    // 4. The machines.
    let mut failed = String::new();
    for driver in drivers {
        let log = folder.join(format!("serial-{driver}.log"));
        println!(
            "Starting {} in qemu, cgroup driver {driver}",
            kernel.version
        );
        let code = boot(&mut cleanup, &work, &kernel, &initramfs, driver, &log)?;
        if code != Some(0) {
            let code = code.map_or("unknown".to_string(), |code| code.to_string());
            write!(
                failed,
                " {driver} (exit code {code}, see {})",
                log.display()
            )?;
        }
    }
    ensure!(
        failed.is_empty(),
        "The tests in the virtual machine failed:{failed}"
    );
    println!("The tests in the virtual machine passed.");
    cleanup.finish()
}

fn drivers(wanted: Option<&str>) -> Result<Vec<&str>> {
    match wanted {
        None => Ok(DRIVERS.to_vec()),
        Some(driver) => {
            ensure!(DRIVERS.contains(&driver), "DRIVER={driver}\n{USAGE}");
            Ok(vec![driver])
        }
    }
}

/// Builds the tests of the runtime; returns their program.
fn test_program(mut cargo: Command) -> Result<PathBuf> {
    cargo.args([
        "test", "--locked", "-p", "runtime", "--test", "node", "--no-run",
    ]);
    let messages = output(cargo.args(["--message-format", "json-render-diagnostics"]))?;
    let program = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| {
            message["target"]["name"] == "node" && message["target"]["kind"][0] == "test"
        })
        .filter_map(|message| Some(PathBuf::from(message["executable"].as_str()?)))
        .next_back();
    program.context("the program of the runtime's tests")
}

/// Runs one machine to its end; returns the exit code that its console shows.
fn boot(
    cleanup: &mut Cleanup,
    work: &Path,
    kernel: &root::Kernel,
    initramfs: &Path,
    driver: &str,
    log: &Path,
) -> Result<Option<i32>> {
    let disk = work.join("disk");
    sh(&["rm", "-f", text(&disk)?])?;
    sh(&["truncate", "-s", "8G", text(&disk)?])?;
    sh(&["mkfs.ext4", "-q", "-E", "lazy_itable_init=1", text(&disk)?])?;
    let accelerated: &[&str] = match variable("ACCEL").as_deref() {
        Some("kvm") => &["-accel", "kvm", "-cpu", "host"],
        _ => &["-accel", "tcg,thread=multi", "-cpu", "max"],
    };
    let mut child = Command::new("timeout")
        .arg(variable("LIMIT").unwrap_or("2400".into()))
        .arg("qemu-system-x86_64")
        .args(accelerated)
        .args([
            "-smp", "2", "-m", "3072", "-display", "none", "-monitor", "none",
        ])
        .args(["-nic", "none", "-no-reboot", "-serial", "stdio"])
        .arg("-drive")
        .arg(format!(
            "file={},format=raw,if=virtio,cache=unsafe",
            disk.display()
        ))
        .arg("-kernel")
        .arg(&kernel.image)
        .arg("-initrd")
        .arg(initramfs)
        .arg("-append")
        .arg(format!(
            "console=ttyS0 panic=-1 loglevel=4 apparmor=1 security=apparmor driver={driver} \
             systemd.unified_cgroup_hierarchy=1 systemd.show_status=0 systemd.log_target=console \
             systemd.log_level=warning"
        ))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    cleanup.stop(child.id())?;
    let mut file = std::fs::File::create(log)?;
    let mut code = None;
    let mut console = BufReader::new(child.stdout.take().context("a console")?);
    let mut bytes = Vec::new();
    while console.read_until(b'\n', &mut bytes)? > 0 {
        let line = String::from_utf8_lossy(&bytes).replace('\r', "");
        print!("{line}");
        std::io::stdout().flush()?;
        file.write_all(line.as_bytes())?;
        code = exit_code(line.trim_end()).or(code);
        bytes.clear();
    }
    child.wait()?;
    Ok(code)
}

fn exit_code(line: &str) -> Option<i32> {
    line.strip_prefix("TEST-VM exit code ")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_driver_or_both() {
        assert_eq!(drivers(None).unwrap(), DRIVERS);
        assert_eq!(drivers(Some("systemd")).unwrap(), ["systemd"]);
        assert!(drivers(Some("openrc")).is_err());
    }

    #[test]
    fn the_exit_code_is_read_from_the_console() {
        assert_eq!(exit_code("TEST-VM exit code 101"), Some(101));
        assert_eq!(exit_code("TEST-VM kernel 6.1"), None);
    }
}
