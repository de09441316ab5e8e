//! logind as far as a kubelet needs it: a lock that delays the shutdown, and its announcement.

use std::{os::fd::OwnedFd, path::Path, time::Duration};

use dbus::{Connection, Error, Kind, Message, Value};

const SERVICE: &str = "org.freedesktop.login1";
const PATH: &str = "/org/freedesktop/login1";
const INTERFACE: &str = "org.freedesktop.login1.Manager";
const SIGNAL: &str = "PrepareForShutdown";
/// Below the directory that logind reads its settings from; the name is upstream's.
const SETTINGS_FILE: &str = "99-kubelet.conf";

pub struct Logind {
    bus: Connection,
}

/// The shutdown waits while this lives.
pub struct Lock {
    _descriptor: OwnedFd,
}

impl Logind {
    pub async fn connect(socket: &Path) -> Result<Logind, Error> {
        let mut bus = Connection::open(socket).await?;
        let rule = format!("type='signal',interface='{INTERFACE}',member='{SIGNAL}',path='{PATH}'");
        bus.listen(&rule).await?;
        Ok(Logind { bus })
    }

    /// For how long locks may delay a shutdown.
    pub async fn longest_delay(&mut self) -> Result<Duration, Error> {
        let body = ["org.freedesktop.login1.Manager", "InhibitDelayMaxUSec"]
            .map(|text| Value::Text(text.to_owned()))
            .to_vec();
        let ask = Message::call(
            SERVICE,
            PATH,
            "org.freedesktop.DBus.Properties",
            "Get",
            body,
        );
        let answer = self.bus.call(ask).await?;
        match answer.body.into_iter().next() {
            Some(Value::Variant(value)) => match *value {
                Value::UInt64(micros) => Ok(Duration::from_micros(micros)),
                _ => Err(Error::Protocol("InhibitDelayMaxUSec is no number")),
            },
            _ => Err(Error::Protocol("InhibitDelayMaxUSec has no value")),
        }
    }

    /// Has logind allow longer delays: written next to its settings, which it then reads again.
    pub async fn allow_delay(&mut self, settings: &Path, delay: Duration) -> Result<(), Error> {
        let text = format!(
            "# Kubelet logind override\n[Login]\nInhibitDelayMaxSec={}\n",
            delay.as_secs()
        );
        tokio::fs::create_dir_all(settings).await?;
        tokio::fs::write(settings.join(SETTINGS_FILE), text).await?;
        let hangup = 1;
        let body = vec![
            Value::Text("systemd-logind.service".to_owned()),
            Value::Text("all".to_owned()),
            Value::Int32(hangup),
        ];
        let reload = Message::call(
            "org.freedesktop.systemd1",
            "/org/freedesktop/systemd1",
            "org.freedesktop.systemd1.Manager",
            "KillUnit",
            body,
        );
        self.bus.call(reload).await.map(drop)
    }

    pub async fn delay_shutdown(&mut self) -> Result<Lock, Error> {
        let body = [
            "shutdown",
            "kubelet",
            "Kubelet needs time to handle node shutdown",
            "delay",
        ]
        .map(|text| Value::Text(text.to_owned()))
        .to_vec();
        let ask = Message::call(SERVICE, PATH, INTERFACE, "Inhibit", body);
        let answer = self.bus.call(ask).await?;
        let descriptor = answer.descriptors.into_iter().next();
        let descriptor = descriptor.ok_or(Error::Protocol("Inhibit gave no lock"))?;
        Ok(Lock {
            _descriptor: descriptor,
        })
    }

    /// Waits for an announcement: the machine shuts down (`true`), or the shutdown was cancelled.
    pub async fn next(&mut self) -> Result<bool, Error> {
        loop {
            let message = self.bus.next().await?;
            let meant = message.kind == Kind::Signal
                && message.member.as_deref() == Some(SIGNAL)
                && message.interface.as_deref() == Some(INTERFACE);
            if let (true, Some(Value::Bool(down))) = (meant, message.body.first()) {
                return Ok(*down);
            }
        }
    }
}
