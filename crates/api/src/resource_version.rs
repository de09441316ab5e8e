//! Which of two resource versions of one kind is newer. The numbers may be of any length.

use std::cmp::Ordering;

/// Whether a text is a number above zero as the API writes it: zero never is an object's version.
pub fn is_well_formed(version: &str) -> bool {
    !version.is_empty()
        && !version.starts_with('0')
        && version.bytes().all(|byte| byte.is_ascii_digit())
}

/// How two versions are ordered; none if one of them is not well formed.
pub fn compare(one: &str, other: &str) -> Option<Ordering> {
    let both = is_well_formed(one) && is_well_formed(other);
    both.then(|| one.len().cmp(&other.len()).then_with(|| one.cmp(other)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_numbers_of_any_length() {
        assert_eq!(compare("9", "10"), Some(Ordering::Less));
        assert_eq!(compare("10", "10"), Some(Ordering::Equal));
        let long = "9".repeat(40);
        assert_eq!(compare(&long, "10"), Some(Ordering::Greater));
    }

    #[test]
    fn texts_that_are_no_versions_have_no_order() {
        for wrong in ["", "0", "01", "1a", "-1", "+1", " 1"] {
            assert_eq!(compare(wrong, "1"), None, "{wrong:?}");
            assert_eq!(compare("1", wrong), None, "{wrong:?}");
        }
    }
}
