//! How many pods a rolling update may add or take away.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::int_or_percent::{Rounding, resolve};

/// The wanted replicas and the room around them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub wanted: i32,
    pub surge: i32,
    pub unavailable: i32,
    /// All old pods end before the first new one begins.
    pub recreate: bool,
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
                recreate: true,
            };
        }
        let rolling = strategy.rolling_update.unwrap_or_default();
        let quarter = IntOrString::String("25%".to_string());
        let surge = resolve(
            rolling.max_surge.as_ref().unwrap_or(&quarter),
            wanted,
            Rounding::Up,
        );
        let mut unavailable = resolve(
            rolling.max_unavailable.as_ref().unwrap_or(&quarter),
            wanted,
            Rounding::Down,
        );
        // Both may round to nothing; then one pod at a time may be missing, or nothing would move.
        if surge == 0 && unavailable == 0 {
            unavailable = 1;
        }
        Limits {
            wanted,
            surge,
            unavailable: unavailable.min(wanted),
            recreate: false,
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
