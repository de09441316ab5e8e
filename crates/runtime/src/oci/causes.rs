//! The reason why libcontainer failed. Its processes report to each other only that they failed and
//! log the reason, so the reason is read from the log events, through a pipe that they inherit.

use std::{
    fmt::Debug,
    io::{PipeReader, PipeWriter, Read, Write},
    os::fd::AsFd,
};

use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

use crate::sys;

/// Longer reasons are cut.
const MOST: usize = 1024;

/// Collects error events of this process and its children.
pub struct Causes(PipeReader);

struct Writer(PipeWriter);

/// From here on errors are collected. None if that cannot be done, which is harmless.
pub fn listen() -> Option<Causes> {
    let (reader, writer) = std::io::pipe().ok()?;
    // Nothing blocks here: what does not fit is lost.
    sys::set_nonblocking(reader.as_fd()).ok()?;
    sys::set_nonblocking(writer.as_fd()).ok()?;
    tracing::subscriber::set_global_default(Writer(writer)).ok()?;
    Some(Causes(reader))
}

impl Causes {
    /// The first reason, which is the deepest one.
    pub fn first(mut self) -> Option<String> {
        let mut bytes = [0; MOST];
        let count = self.0.read(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes[..count]);
        let first = text.lines().next()?.trim();
        (!first.is_empty()).then(|| first.to_owned())
    }
}

impl Subscriber for Writer {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::ERROR
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let mut text = line.message;
        for part in line.fields {
            text.push_str(&format!(", {part}"));
        }
        text.truncate(text.floor_char_boundary(MOST / 2));
        let _ = (&self.0).write_all((text.replace('\n', " ") + "\n").as_bytes());
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[derive(Default)]
struct Line {
    message: String,
    fields: Vec<String>,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => self.fields.push(format!("{name}: {value:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_logged_error_is_the_reason() {
        let (reader, writer) = std::io::pipe().unwrap();
        sys::set_nonblocking(reader.as_fd()).unwrap();
        tracing::subscriber::with_default(Writer(writer), || {
            tracing::warn!("not this");
            tracing::error!(err = ?"EINVAL", "failed to mount");
            tracing::error!("nor this");
        });
        let first = Causes(reader).first();
        assert_eq!(first.as_deref(), Some("failed to mount, err: \"EINVAL\""));
    }
}
