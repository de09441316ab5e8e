//! How many pods a rolling update may add or take away.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// The wanted replicas and the room around them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub wanted: i32,
    pub surge: i32,
    pub unavailable: i32,
}

impl Limits {
    pub fn of(deployment: &Deployment) -> Limits {
        let spec = deployment.spec.clone().unwrap_or_default();
        let wanted = spec.replicas.unwrap_or(1).max(0);
        let strategy = spec.strategy.unwrap_or_default();
        if strategy.type_.as_deref() == Some("Recreate") {
            return Limits {
                wanted,
                surge: 0,
                unavailable: 0,
            };
        }
        let rolling = strategy.rolling_update.unwrap_or_default();
        let quarter = IntOrString::String("25%".to_string());
        let surge = resolve(rolling.max_surge.as_ref().unwrap_or(&quarter), wanted, true);
        let mut unavailable = resolve(
            rolling.max_unavailable.as_ref().unwrap_or(&quarter),
            wanted,
            false,
        );
        // Both may round to nothing; then one pod at a time may be missing, or nothing would move.
        if surge == 0 && unavailable == 0 {
            unavailable = 1;
        }
        Limits {
            wanted,
            surge,
            unavailable: unavailable.min(wanted),
        }
    }

    /// The most pods there may be at once.
    pub fn maximum(&self) -> i32 {
        self.wanted + self.surge
    }

    /// The fewest pods that must be available.
    pub fn minimum_available(&self) -> i32 {
        self.wanted - self.unavailable
    }
}

/// A number, or a percentage of `total`; surge rounds up, unavailability down.
fn resolve(value: &IntOrString, total: i32, round_up: bool) -> i32 {
    match value {
        IntOrString::Int(number) => (*number).max(0),
        IntOrString::String(text) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
            let product = percent * i64::from(total);
            let rounded = if round_up {
                (product + 99) / 100
            } else {
                product / 100
            };
            rounded.max(0) as i32
        }
    }
}
