//! The order of versions: generally available ones first, then beta, then alpha, each the newest
//! first; names that are no versions of Kubernetes' form come last, by name.

use std::cmp::Ordering;

/// Compares two versions of a group; the greater one is preferred.
pub fn compare_versions(left: &str, right: &str) -> Ordering {
    match (parse(left), parse(right)) {
        (Some(left), Some(right)) => left.cmp(&right),
        (Some(_), None) => Ordering::Greater,
        (None, Some(_)) => Ordering::Less,
        (None, None) => right.cmp(left),
    }
}

/// How stable it is, its major and its minor number.
fn parse(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let (major, rest) = number(rest)?;
    if rest.is_empty() {
        return Some((2, major, 0));
    }
    let (stability, rest) = match rest.strip_prefix("beta") {
        Some(rest) => (1, rest),
        None => (0, rest.strip_prefix("alpha")?),
    };
    let (minor, rest) = number(rest)?;
    rest.is_empty().then_some((stability, major, minor))
}

/// A number, and what follows it.
fn number(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|letter: char| !letter.is_ascii_digit());
    let (digits, rest) = text.split_at(end.unwrap_or(text.len()));
    Some((digits.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stable_versions_are_preferred_and_newer_ones_first() {
        let mut versions = [
            "foo10",
            "v1alpha2",
            "v2",
            "v11beta2",
            "v1",
            "v10",
            "v12alpha1",
            "foo1",
            "v3beta1",
        ];
        versions.sort_by(|left, right| compare_versions(right, left));
        assert_eq!(
            versions,
            [
                "v10",
                "v2",
                "v1",
                "v11beta2",
                "v3beta1",
                "v12alpha1",
                "v1alpha2",
                "foo1",
                "foo10",
            ]
        );
    }
}
