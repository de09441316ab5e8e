//! Numbers that may be given as a share of something, e.g. `maxSurge: 25%`.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    Up,
    Down,
}

/// The number itself, or that percentage of `total`; never negative. Text that is no percentage
/// counts as nothing: validation has refused it long before.
pub fn resolve(value: &IntOrString, total: i32, rounding: Rounding) -> i32 {
    match value {
        IntOrString::Int(number) => (*number).max(0),
        IntOrString::String(text) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
            let product = percent.saturating_mul(i64::from(total));
            let share = match rounding {
                Rounding::Up => product.saturating_add(99) / 100,
                Rounding::Down => product / 100,
            };
            i32::try_from(share.max(0)).unwrap_or(i32::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_rounded_as_asked_and_numbers_are_kept() {
        let share = |text: &str, total, rounding| {
            resolve(&IntOrString::String(text.to_owned()), total, rounding)
        };
        assert_eq!(share("25%", 10, Rounding::Up), 3);
        assert_eq!(share("25%", 10, Rounding::Down), 2);
        assert_eq!(share("100%", 7, Rounding::Down), 7);
        assert_eq!(share("0%", 7, Rounding::Up), 0);
        assert_eq!(resolve(&IntOrString::Int(4), 1, Rounding::Up), 4);
        assert_eq!(resolve(&IntOrString::Int(-4), 1, Rounding::Up), 0);
    }
}
