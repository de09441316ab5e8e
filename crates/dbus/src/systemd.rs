//! systemd as far as cgroups need it: slices and scopes that exist for a while, their limits, and
//! their end. A connection is made for a few calls and closed, so that no signals pile up on it.

use std::{future::Future, io, path::Path, time::Duration};

use crate::{Connection, Error, Kind, Message, Value};

const SERVICE: &str = "org.freedesktop.systemd1";
const PATH: &str = "/org/freedesktop/systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
const SYSTEM_BUS: &str = "/run/dbus/system_bus_socket";
/// systemd's own socket, which only root can open and which needs no bus.
const PRIVATE: &str = "/run/systemd/private";
/// As long as other container runtimes wait.
const LONGEST_JOB: Duration = Duration::from_secs(30);
/// No limit, to systemd.
pub const INFINITY: u64 = u64::MAX;
/// The period of a quota that names none, in microseconds.
const CPU_PERIOD: u64 = 100_000;

/// Whether systemd is what started this machine.
pub fn is_running() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

/// One property of a unit.
pub type Property = (&'static str, Value);

pub struct Systemd {
    bus: Connection,
}

impl Systemd {
    pub async fn connect() -> Result<Systemd, Error> {
        let mut bus = match Connection::open(Path::new(SYSTEM_BUS)).await {
            Ok(mut bus) => {
                let rule = format!(
                    "type='signal',interface='{MANAGER}',member='JobRemoved',path='{PATH}'"
                );
                bus.listen(&rule).await?;
                bus
            }
            Err(_) => Connection::open_private(Path::new(PRIVATE)).await?,
        };
        bus.call(manager("Subscribe", Vec::new())).await?;
        Ok(Systemd { bus })
    }

    /// Makes a slice and waits for it. One that is there gets the properties.
    pub async fn ensure_slice(&mut self, slice: &str, limits: Vec<Property>) -> Result<(), Error> {
        let mut properties = kept_by_us(&format!("Pods in {slice}"));
        properties.extend(limits.iter().cloned());
        match self.start(slice, properties).await {
            Err(Error::Method { name, .. }) if name.ends_with(".UnitExists") => {
                self.set(slice, limits).await
            }
            other => other,
        }
    }

    /// Makes a scope in `slice` with this process in it. What an earlier one of the same name left
    /// behind goes.
    pub async fn start_scope(
        &mut self,
        unit: &str,
        slice: &str,
        pid: u32,
        limits: Vec<Property>,
    ) -> Result<(), Error> {
        let mut properties = kept_by_us(&format!("{unit} of a pod"));
        properties.extend([
            ("Slice", text(slice)),
            // Delegated: the processes in it may make cgroups below it.
            ("Delegate", Value::Bool(true)),
            ("PIDs", Value::Array("u", vec![Value::UInt32(pid)])),
            // One that was killed for memory must not stay behind as failed.
            ("CollectMode", text("inactive-or-failed")),
        ]);
        properties.extend(limits);
        match self.start(unit, properties.clone()).await {
            Err(Error::Method { name, .. }) if name.ends_with(".UnitExists") => {
                self.forget_failure(unit).await;
                self.start(unit, properties).await
            }
            other => other,
        }
    }

    /// Changes properties until the unit ends.
    pub async fn set(&mut self, unit: &str, properties: Vec<Property>) -> Result<(), Error> {
        if properties.is_empty() {
            return Ok(());
        }
        let body = vec![text(unit), Value::Bool(true), pairs(properties)];
        self.bus
            .call(manager("SetUnitProperties", body))
            .await
            .map(drop)
    }

    /// Ends a unit and waits for its end. Those in a slice end with it. None there is fine.
    pub async fn stop(&mut self, unit: &str) -> Result<(), Error> {
        let body = vec![text(unit), text("replace")];
        let stopped = match self.bus.call(manager("StopUnit", body)).await {
            Ok(answer) => self.finish(unit, &answer).await,
            Err(Error::Method { name, .. }) if name.ends_with(".NoSuchUnit") => return Ok(()),
            Err(error) => Err(error),
        };
        self.forget_failure(unit).await;
        stopped
    }

    async fn start(&mut self, unit: &str, properties: Vec<Property>) -> Result<(), Error> {
        let body = vec![
            text(unit),
            text("replace"),
            pairs(properties),
            Value::Array("(sa(sv))", Vec::new()),
        ];
        let answer = self.bus.call(manager("StartTransientUnit", body)).await?;
        self.finish(unit, &answer).await
    }

    async fn forget_failure(&mut self, unit: &str) {
        // Most have none, which is an error to systemd.
        let _ = self
            .bus
            .call(manager("ResetFailedUnit", vec![text(unit)]))
            .await;
    }

    /// Waits for the job that an answer names.
    async fn finish(&mut self, unit: &str, answer: &Message) -> Result<(), Error> {
        let Some(Value::Path(job)) = answer.body.first() else {
            return Err(Error::Protocol("systemd named no job"));
        };
        let ended = async {
            loop {
                let message = self.bus.next().await?;
                if message.kind != Kind::Signal || message.member.as_deref() != Some("JobRemoved") {
                    continue;
                }
                if let [_, Value::Path(removed), _, Value::Text(result)] = message.body.as_slice()
                    && removed == job
                {
                    return Ok::<String, Error>(result.clone());
                }
            }
        };
        let result = tokio::time::timeout(LONGEST_JOB, ended)
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        match result.as_str() {
            "done" => Ok(()),
            _ => Err(Error::Job {
                unit: unit.to_owned(),
                result,
            }),
        }
    }
}

/// Connects, does `work` and closes the connection. It blocks the thread.
pub fn blocking<T, F>(work: impl FnOnce(Systemd) -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let tokio = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    tokio.block_on(async { work(Systemd::connect().await?).await })
}

/// Limits of a slice or a scope; those that are `None` are not sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes.
    pub memory: Option<u64>,
    /// Bytes of swap alone.
    pub swap: Option<u64>,
    /// 1 to 10,000.
    pub cpu_weight: Option<u64>,
    /// Microseconds in each period; negative for no limit.
    pub cpu_quota: Option<i64>,
    pub cpu_period: Option<u64>,
    pub processes: Option<u64>,
    /// Lists of numbers and ranges.
    pub cpus: Option<String>,
    pub memory_nodes: Option<String>,
}

impl Limits {
    pub fn properties(&self) -> Vec<Property> {
        let mut properties = Vec::new();
        let numbers = [
            ("MemoryMax", self.memory),
            ("MemorySwapMax", self.swap),
            ("CPUWeight", self.cpu_weight),
            ("CPUQuotaPeriodUSec", self.cpu_period),
            (
                "CPUQuotaPerSecUSec",
                self.cpu_quota.map(|quota| self.per_second(quota)),
            ),
            // systemd accepts no limit of zero processes.
            ("TasksMax", self.processes.map(|count| count.max(1))),
        ];
        for (name, number) in numbers {
            if let Some(number) = number {
                properties.push((name, Value::UInt64(number)));
            }
        }
        let sets = [
            ("AllowedCPUs", &self.cpus),
            ("AllowedMemoryNodes", &self.memory_nodes),
        ];
        for (name, list) in sets {
            if let Some(bits) = list.as_deref().and_then(bits) {
                let bits = bits.into_iter().map(Value::Byte).collect();
                properties.push((name, Value::Array("y", bits)));
            }
        }
        properties
    }

    /// systemd knows whole percents: rounded up, so that what is below still gets its share.
    fn per_second(&self, quota: i64) -> u64 {
        const PERCENT: u64 = 10_000;
        let period = self.cpu_period.filter(|period| *period > 0);
        match u64::try_from(quota) {
            Ok(quota) if quota > 0 => (quota.saturating_mul(1_000_000)
                / period.unwrap_or(CPU_PERIOD))
            .div_ceil(PERCENT)
            .saturating_mul(PERCENT),
            _ => INFINITY,
        }
    }
}

/// `0-2,5` as a mask whose first byte holds the lowest numbers.
fn bits(list: &str) -> Option<Vec<u8>> {
    const MOST: usize = 8192;
    let mut mask = Vec::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if last >= MOST || first > last {
            return None;
        }
        mask.resize(mask.len().max(last / 8 + 1), 0);
        for number in first..=last {
            mask[number / 8] |= 1 << (number % 8);
        }
    }
    Some(mask)
}

/// What every unit of ours is.
fn kept_by_us(description: &str) -> Vec<Property> {
    vec![
        ("Description", text(description)),
        // It is stopped by us and not by the machine's shutdown.
        ("DefaultDependencies", Value::Bool(false)),
        ("MemoryAccounting", Value::Bool(true)),
        ("CPUAccounting", Value::Bool(true)),
        ("IOAccounting", Value::Bool(true)),
        ("TasksAccounting", Value::Bool(true)),
    ]
}

fn manager(member: &str, body: Vec<Value>) -> Message {
    Message::call(SERVICE, PATH, MANAGER, member, body)
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

fn pairs(properties: Vec<Property>) -> Value {
    let pairs = properties
        .into_iter()
        .map(|(name, value)| Value::Struct(vec![text(name), Value::Variant(Box::new(value))]));
    Value::Array("(sv)", pairs.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_become_systemd_properties() {
        let limits = Limits {
            memory: Some(64 << 20),
            cpu_weight: Some(39),
            cpu_quota: Some(25_500),
            processes: Some(0),
            cpus: Some("0-2,9".to_owned()),
            ..Limits::default()
        };
        assert_eq!(
            limits.properties(),
            [
                ("MemoryMax", Value::UInt64(64 << 20)),
                ("CPUWeight", Value::UInt64(39)),
                ("CPUQuotaPerSecUSec", Value::UInt64(260_000)),
                ("TasksMax", Value::UInt64(1)),
                (
                    "AllowedCPUs",
                    Value::Array("y", vec![Value::Byte(0b111), Value::Byte(0b10)])
                ),
            ]
        );
        let none = Limits {
            cpu_quota: Some(-1),
            cpus: Some("nonsense".to_owned()),
            ..Limits::default()
        };
        assert_eq!(
            none.properties(),
            [("CPUQuotaPerSecUSec", Value::UInt64(INFINITY))]
        );
        let halves = Limits {
            cpu_quota: Some(50_000),
            cpu_period: Some(100_000),
            ..Limits::default()
        };
        assert_eq!(halves.properties()[1].1, Value::UInt64(500_000));
    }
}
