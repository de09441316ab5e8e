//! The signal that stops a container.

use cri::v1::{ContainerConfig, Signal};

use crate::images::ImageRecord;

/// The signal that the pod asks for, else the image's, else SIGTERM.
pub fn stop_signal(config: &ContainerConfig, image: &ImageRecord) -> i32 {
    let requested = config.stop_signal();
    let name = match requested {
        Signal::RuntimeDefault => image.process.stop_signal.clone(),
        other => other.as_str_name().to_owned(),
    };
    signal_number(&name).unwrap_or(libc::SIGTERM)
}

/// From `SIGTERM`, `TERM`, `15` or CRI's `SIGRTMINPLUS3`.
fn signal_number(name: &str) -> Option<i32> {
    if let Ok(number @ 1..=64) = name.parse() {
        return Some(number);
    }
    let upper = name
        .to_ascii_uppercase()
        .replace('+', "PLUS")
        .replace('-', "MINUS");
    let full = if upper.starts_with("SIG") {
        upper
    } else {
        format!("SIG{upper}")
    };
    let real_time = |prefix: &str, base: i32, sign: i32| {
        let rest = full.strip_prefix(prefix)?;
        let offset = if rest.is_empty() {
            0
        } else {
            rest.parse::<i32>().ok()?
        };
        Some(base + sign * offset)
    };
    real_time("SIGRTMINPLUS", 34, 1)
        .or_else(|| real_time("SIGRTMAXMINUS", 64, -1))
        .or_else(|| (full == "SIGRTMIN").then_some(34))
        .or_else(|| (full == "SIGRTMAX").then_some(64))
        .or_else(|| {
            full.parse::<nix::sys::signal::Signal>()
                .ok()
                .map(|signal| signal as i32)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_found_by_name_and_number() {
        for (name, number) in [
            ("SIGTERM", 15),
            ("QUIT", 3),
            ("9", 9),
            ("SIGRTMIN+3", 37),
            ("SIGRTMAXMINUS1", 63),
        ] {
            assert_eq!(signal_number(name), Some(number), "{name}");
        }
        assert_eq!(signal_number(""), None);
    }
}
