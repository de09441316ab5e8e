//! Regular expressions that Go reads differently than the crate, and its messages for wrong ones.

use super::compile;

fn found<'a>(pattern: &str, text: &'a str) -> Option<&'a str> {
    let pattern = compile(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
    pattern.find(text).map(|found| found.as_str())
}

#[test]
fn syntax_is_read_as_re2_reads_it() {
    for (pattern, text, expected) in [
        (r"\w+", "éa_1", Some("a_1")),
        (r"\d", "٣", None),
        (r"\s", "\u{b}", None),
        (r"\bä", "xä", Some("ä")),
        (r"\<", "a<b", Some("<")),
        ("[[a]b", "[b", Some("[b")),
        ("[a&&b]+", "a&b", Some("a&b")),
        ("[--a]", "-", Some("-")),
        ("a{,2}", "a{,2}", Some("a{,2}")),
        ("x{2}{", "xx{", Some("xx{")),
        (r"\Qa.b\E.", "a.bc", Some("a.bc")),
        ("(?i)k", "\u{212a}", Some("\u{212a}")),
        ("(?i)[a-z]+", "AbC", Some("AbC")),
        ("a(?i)b", "aB", Some("aB")),
        ("(a(?i)b)c", "aBC", None),
        ("(?U)a+", "aaa", Some("a")),
        ("(?U)a+?", "aaa", Some("aaa")),
        ("(?m)^b$", "a\nb\nc", Some("b")),
        ("a$", "a\n", None),
        (".", "\n", None),
        ("(?s).", "\n", Some("\n")),
        (r"\x{61}\x62\141", "aba", Some("aba")),
        (r"\pN+", "a12", Some("12")),
        (r"\p{^Lu}", "Ab", Some("b")),
        (r"\p{greek}", "aα", Some("α")),
        (r"[\x{D800}-\x{E000}]", "\u{e000}", Some("\u{e000}")),
        ("a*(?i)*", "aa", Some("aa")),
        ("", "a", Some("")),
    ] {
        assert_eq!(found(pattern, text), expected, "{pattern}");
    }
}

#[test]
fn wrong_expressions_are_refused_in_gos_words() {
    for (pattern, expected) in [
        ("[a", "missing closing ]: `[a`"),
        ("(a", "missing closing ): `(a`"),
        ("a)", "unexpected ): `a)`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("a+?*", "invalid nested repetition operator: `+?*`"),
        ("|*", "missing argument to repetition operator: `*`"),
        ("(?i)+", "missing argument to repetition operator: `+`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("a{2,1}", "invalid repeat count: `{2,1}`"),
        ("((a{100}){10}){2}", "invalid repeat count: `{2}`"),
        (r"\8", r"invalid escape sequence: `\8`"),
        (r"\1", r"invalid escape sequence: `\1`"),
        (r"\C", r"invalid escape sequence: `\C`"),
        (r"\x{110000}", r"invalid escape sequence: `\x{110000`"),
        ("a\\", "trailing backslash at end of expression: ``"),
        ("[b-a]", "invalid character class range: `b-a`"),
        ("[[:foo:]]", "invalid character class range: `[:foo:]`"),
        (r"\p{Grek}", r"invalid character class range: `\p{Grek}`"),
        (
            r"\p{Alphabetic}",
            r"invalid character class range: `\p{Alphabetic}`",
        ),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        ("(?x)a", "invalid or unsupported Perl syntax: `(?x`"),
        ("(?<=a)", "invalid named capture: `(?<=a)`"),
        ("(?P<a-b>x)", "invalid named capture: `(?P<a-b>`"),
    ] {
        let error = compile(pattern).expect_err(pattern).to_string();
        assert_eq!(error, format!("error parsing regexp: {expected}"));
    }
}

#[test]
fn deep_and_large_expressions_need_little_stack() {
    let deep = |depth: usize| format!("{}a{}", "(".repeat(depth), ")*".repeat(depth));
    let check = std::thread::Builder::new()
        .stack_size(2 << 20)
        .spawn(move || {
            assert!(compile(&deep(120)).is_ok());
            assert!(compile(&deep(900)).is_err());
            assert!(compile(&deep(2000)).is_err());
            assert!(compile(&"(".repeat(100_000)).is_err());
            assert!(compile(&format!("{}{}", r"\pL{100}".repeat(2000), "x")).is_err());
        });
    let check = check.expect("a thread");
    assert!(check.join().is_ok());
}
