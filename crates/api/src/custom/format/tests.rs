//! Formats with texts that have them and texts that do not.

use super::*;

fn check(name: &str, accepted: &[&str], refused: &[&str]) {
    let format = Format::checked(Kind::String, name).expect("a known format");
    for text in accepted {
        assert!(format.accepts(text), "{name}: {text:?}");
    }
    for text in refused {
        assert!(!format.accepts(text), "{name}: {text:?}");
    }
}

#[test]
fn texts_are_checked_by_their_format() {
    check("date", &["2024-02-29"], &["2023-02-29", "2024-2-1", "x"]);
    check(
        "date-time",
        &["2014-12-15T19:30:20.000Z", "2014-12-15t08:00:00+01:00"],
        &["2014-12-15", "2014-12-15T24:00:00Z", "2014-12-15T08:00:00"],
    );
    check("duration", &["22 ns", "1h30m", "3 days", "0", "-1.5h"], &["", "days", "5"]);
    check(
        "uuid4",
        &["025b0d74-00a2-4048-bf57-227c5111bb34"],
        &["025b0d74-00a2-3048-bf57-227c5111bb34", "025b0d74"],
    );
    check("ipv4", &["1.2.3.4", "01.2.3.4", "::ffff:1.2.3.4"], &["1.2.3", "::1", "256.1.1.1"]);
    check("ipv6", &["::1", "2001:db8::1"], &["1.2.3.4", "::1%eth0"]);
    check("cidr", &["10.0.0.0/8", "::/0"], &["10.0.0.0", "10.0.0.0/33"]);
    check("mac", &["01:02:03:04:05:06", "0102.0304.0506"], &["01:02:03:04:05", "01-02:03:04:05:06"]);
    check("email", &["a@b.c", "Bob <bob@x.y>", "\"a b\"@c"], &["a b@c", "a@", "@b", "a@b.c d"]);
    check("hostname", &["a", "a-b", "a.example.com"], &["", "ab-c", "-a.com", "a.b.c1", "a_b.com"]);
    check("uri", &["http://foo.bar/#com", "/abs", "mailto:a@b"], &["", "foobar.com", "./rel", ":x"]);
    check("byte", &["aGk=", "aGkh"], &["", "aGk", "a===", "aG!="]);
    check("isbn", &["3836221195", "978-3836221191"], &["3836221196", "x"]);
    check("creditcard", &["4220 8554 2622 2389"], &["4220855426213389", ""]);
    check("ssn", &["111-11-1111"], &["11-11-1111", "111111111"]);
    check("hexcolor", &["#fff", "CCccCC"], &["#ff", "fff0"]);
    check("rgbcolor", &["rgb(0, 31,255)"], &["rgb(01,31,255)", "rgb(1,349,275)"]);
    check("bsonobjectid", &["507f1f77bcf86cd799439011"], &["507f1f77bcf86cd79943901"]);
    check("k8s-short-name", &["a-1"], &["A", "a.b", "-a", ""]);
    check("k8s-long-name", &["a.b-1.c"], &["a..b", "a.-b"]);
}

#[test]
fn formats_count_only_for_their_type() {
    assert_eq!(Format::checked(Kind::Integer, "int32"), Some(Format::Int32));
    assert_eq!(Format::checked(Kind::String, "int32"), None);
    assert_eq!(Format::checked(Kind::Integer, "date"), None);
    assert_eq!(Format::checked(Kind::Any, "date"), Some(Format::Date));
    assert_eq!(Format::checked(Kind::String, "made-up"), None);
    assert_eq!(Format::checked(Kind::Object, "date"), None);
}
