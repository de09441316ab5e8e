//! What the CRI suite pulls besides: images that differ in a file, in their user, in their groups.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::root::{unpack, write};
use super::{PATH, Workshop, applets};
use crate::judges::command::{output, sh, text};

pub fn make(workshop: &Workshop<'_>) -> Result<()> {
    let folder = workshop.archives.join("critest");
    std::fs::create_dir_all(&folder)?;
    shells(workshop)?;
    servers(workshop)?;
    std::fs::write(folder.join("complete"), "")?;
    Ok(())
}

/// The suite was written for busybox: its words, a top that needs no terminal, and one file per
/// command. Debian's static one has a shell that does not look for commands, and no ipcs and pgrep:
/// these are taken with the libraries they need, and nothing else, since the suite pulls its images
/// again and again.
fn shells(workshop: &Workshop<'_>) -> Result<()> {
    let root = workshop.work.join("critest");
    unpack(workshop, &root, &["busybox-static"])?;
    let busybox = root.join("bin/busybox");
    for applet in output(Command::new(&busybox).arg("--list"))?.lines() {
        if applet != "busybox" {
            sh(&[
                "ln",
                "-f",
                text(&busybox)?,
                text(&root.join("bin").join(applet))?,
            ])?;
        }
    }
    let tools = workshop.work.join("tools");
    unpack(workshop, &tools, &["util-linux", "procps", "busybox"])?;
    std::fs::rename(tools.join("usr/bin/busybox"), tools.join("usr/bin/sh"))?;
    for tool in ["ipcs", "pgrep", "sh"] {
        let program = tools.join("usr/bin").join(tool);
        let to = root.join("usr/bin");
        sh(&["cp", "--remove-destination", text(&program)?, text(&to)?])?;
        let list = output(
            Command::new("chroot")
                .arg(&tools)
                .arg(loader()?)
                .args(["--list", &format!("/usr/bin/{tool}")]),
        )?;
        for library in libraries(&list) {
            crate::judges::command::run(
                Command::new("cp")
                    .args(["-L", "--parents", &format!(".{library}"), text(&root)?])
                    .current_dir(&tools),
            )?;
        }
    }
    let variant = |name: &str, user: &str| {
        let user = match user {
            "" => String::new(),
            user => format!(r#""User":"{user}","#),
        };
        let config = format!(r#"{{{user}"Env":[{PATH}],"Cmd":["sh"]}}"#);
        image(workshop, &root, name, &config)
    };
    variant("busybox", "")?;
    for test in ["latest", "tag", "digest", "all", "tags", "1", "2", "3"] {
        let file = root.join(test);
        std::fs::write(&file, format!("{test}\n"))?;
        variant(&format!("test-image-{test}"), "")?;
        std::fs::remove_file(file)?;
    }
    variant("test-image-user-uid", "1002")?;
    variant("test-image-user-username", "www-data")?;
    variant("test-image-user-username-group", "www-data:100")?;
    let group = root.join("etc/group");
    write::append(&group, "users:x:100:\n")?;
    variant("test-image-user-uid-group", "1003:users")?;
    write::append(
        &root.join("etc/passwd"),
        "default-user:x:1000:1000::/home/default-user:/bin/sh\n",
    )?;
    write::append(
        &group,
        "default-user:x:1000:\ngroup-defined-in-image:x:50000:default-user\n",
    )?;
    variant("test-image-predefined-group", "1000")
}

fn servers(workshop: &Workshop<'_>) -> Result<()> {
    let root = workshop.work.join("critest-nginx");
    unpack(workshop, &root, &["nginx", "busybox-static", "bash"])?;
    applets(&root)?;
    sh(&["rm", "-rf", text(&root.join("var/run"))?])?;
    std::os::unix::fs::symlink("/run", root.join("var/run"))?;
    for folder in ["usr/share/nginx/html", "var/lib/nginx", "var/log/nginx"] {
        std::fs::create_dir_all(root.join(folder))?;
    }
    let page = root.join("usr/share/nginx/html/index.html");
    if !page.exists() {
        std::fs::write(page, "Welcome to nginx!\n")?;
    }
    let configuration = std::fs::read_to_string(workshop.recipes.join("nginx.conf"))?;
    let file = root.join("etc/nginx/nginx.conf");
    std::fs::write(&file, on_port_12003(&configuration))?;
    let nginx = format!(r#"{{"Env":[{PATH}],"Cmd":["nginx","-g","daemon off;"]}}"#);
    image(workshop, &root, "hostnet-nginx", &nginx)?;
    std::fs::write(&file, configuration)?;
    image(workshop, &root, "nginx", &nginx)?;
    // The suite looks for this name in the server's log.
    let httpd = format!(
        r#"{{"Env":[{PATH}],"Cmd":["sh","-c","echo httpd; exec nginx -g \"daemon off;\""]}}"#
    );
    image(workshop, &root, "httpd", &httpd)
}

fn image(workshop: &Workshop<'_>, root: &Path, name: &str, config: &str) -> Result<()> {
    let file = workshop
        .archives
        .join("critest")
        .join(format!("{name}.tar"));
    let names = [format!("{name}:latest")];
    super::archive(&workshop.work, &file, root, config, &names)
}

/// The dynamic loader of this machine, which the tools have at the same place.
fn loader() -> Result<PathBuf> {
    for folder in ["/lib64", "/lib"] {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with("ld-linux") {
                return Ok(entry.path());
            }
        }
    }
    None.context("a dynamic loader in /lib64 or /lib")
}

/// Paths in the loader's list: "libc.so.6 => /lib/libc.so.6 (0x…)" and "/lib64/ld.so (0x…)".
fn libraries(list: &str) -> Vec<&str> {
    list.lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                [_, "=>", path, ..] => Some(path),
                [path, ..] if path.starts_with('/') => Some(path),
                _ => None,
            }
        })
        .collect()
}

/// The same configuration with the port that the suite asks on the host's network.
fn on_port_12003(configuration: &str) -> String {
    let lines = configuration
        .lines()
        .map(|line| match line.contains("listen ") {
            true => line.replace("80;", "12003;"),
            false => line.to_string(),
        });
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_from_the_loaders_list() {
        let list = "\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x2)\n\t/lib64/ld-linux-x86-64.so.2 (0x3)\n";
        assert_eq!(
            libraries(list),
            ["/lib/x/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]
        );
    }

    #[test]
    fn only_the_port_of_listen_lines_changes() {
        let text = "a 80;\n  listen 80;\n  listen [::]:80;\n";
        assert_eq!(
            on_port_12003(text),
            "a 80;\n  listen 12003;\n  listen [::]:12003;\n"
        );
    }
}
