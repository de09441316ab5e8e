//! Patterns as Go reads them.

use super::*;

#[test]
fn patterns_match_as_in_go() {
    let check = |pattern: &str, text: &str, expected: bool| {
        assert_eq!(is_match(pattern, text), Ok(expected), "{pattern} on {text:?}");
    };
    check(r"^\d+$", "12", true);
    check(r"^\d+$", "٣", false);
    check(r"^[\w.-]+$", "a.b-c_1", true);
    check(r"^[[]$", "[", true);
    check(r"^[a&&b]$", "&", true);
    check(r"^[0-9a-zA-Z-.]+$", "a-.", true);
    check(r"^\Qa.b\E$", "a.b", true);
    check(r"^\Qa.b\E$", "axb", false);
    check(r"^a{,2}$", "a{,2}", true);
    check(r"\101", "A", true);
    check(r"(?i)^straße$", "STRASSE", false);
    check(r"(?i)^ÀB$", "àb", true);
    check(r"^\p{Greek}+$", "αβ", true);
    check(r"^\p{^Greek}$", "a", true);
    check(r"\bfoo\b", "a foo b", true);
    check(r"^\x{1F600}$", "😀", true);
    check(r"^(?P<n>a)(?P<n>b)$", "ab", true);
}

#[test]
fn errors_have_gos_words() {
    let check = |pattern: &str, expected: &str| {
        let error = super::check(pattern).expect_err(pattern).to_string();
        assert_eq!(error, format!("error parsing regexp: {expected}"));
    };
    check("(", "missing closing ): `(`");
    check("a)", "unexpected ): `a)`");
    check("[a", "missing closing ]: `[a`");
    check("[z-a]", "invalid character class range: `z-a`");
    check("*", "missing argument to repetition operator: `*`");
    check("a**", "invalid nested repetition operator: `**`");
    check("x{1001}", "invalid repeat count: `{1001}`");
    check("(?=a)", "invalid or unsupported Perl syntax: `(?=`");
    check(r"\8", r"invalid escape sequence: `\8`");
    check("a\\", "trailing backslash at end of expression: ``");
    check(r"\pX", r"invalid character class range: `\pX`");
}

#[test]
fn compiled_patterns_are_kept_within_a_bound() {
    for number in 0..2 * MOST_KEPT {
        assert_eq!(is_match(&format!("^x{number}$"), "y"), Ok(false));
    }
    assert!(COMPILED.lock().unwrap().by_pattern.len() <= MOST_KEPT);
}
