//! The formats that values are checked against. A format that is not here, or that is declared for
//! another type, is accepted and means nothing.

mod codes;
mod email;
mod network;
mod time;
mod uri;

#[cfg(test)]
mod tests;

use super::kind::Kind;

/// The scheme and the host of a URI of a request, as Go reads it.
pub use time::duration;
pub use uri::parse as request_uri;

/// A format that is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    Int32,
    Int64,
    Float,
    Double,
    BsonObjectId,
    Uri,
    Email,
    Hostname,
    Ipv4,
    Ipv6,
    Cidr,
    Mac,
    Uuid,
    Uuid3,
    Uuid4,
    Uuid5,
    Isbn,
    Isbn10,
    Isbn13,
    CreditCard,
    Ssn,
    HexColor,
    RgbColor,
    Byte,
    Password,
    Date,
    Duration,
    DateTime,
    ShortName,
    LongName,
}

/// The formats of texts by name, in which hyphens do not count.
const TEXTS: [(&str, Format); 26] = [
    ("bsonobjectid", Format::BsonObjectId),
    ("uri", Format::Uri),
    ("email", Format::Email),
    ("hostname", Format::Hostname),
    ("ipv4", Format::Ipv4),
    ("ipv6", Format::Ipv6),
    ("cidr", Format::Cidr),
    ("mac", Format::Mac),
    ("uuid", Format::Uuid),
    ("uuid3", Format::Uuid3),
    ("uuid4", Format::Uuid4),
    ("uuid5", Format::Uuid5),
    ("isbn", Format::Isbn),
    ("isbn10", Format::Isbn10),
    ("isbn13", Format::Isbn13),
    ("creditcard", Format::CreditCard),
    ("ssn", Format::Ssn),
    ("hexcolor", Format::HexColor),
    ("rgbcolor", Format::RgbColor),
    ("byte", Format::Byte),
    ("password", Format::Password),
    ("date", Format::Date),
    ("duration", Format::Duration),
    ("datetime", Format::DateTime),
    ("k8sshortname", Format::ShortName),
    ("k8slongname", Format::LongName),
];

impl Format {
    /// The format to check values of a type against, if its name means something for that type.
    pub fn checked(kind: Kind, name: &str) -> Option<Format> {
        match kind {
            Kind::Any | Kind::String => {
                let name = name.replace('-', "");
                let mut known = TEXTS.iter();
                known
                    .find(|(known, _)| *known == name)
                    .map(|(_, format)| *format)
            }
            Kind::Integer => match name {
                "int32" => Some(Format::Int32),
                "int64" => Some(Format::Int64),
                _ => None,
            },
            Kind::Number => match name {
                "float" => Some(Format::Float),
                "double" => Some(Format::Double),
                _ => None,
            },
            Kind::Object | Kind::Array | Kind::Boolean => None,
        }
    }

    /// Whether it is a format of texts rather than of numbers.
    pub fn is_of_texts(self) -> bool {
        !matches!(
            self,
            Format::Int32 | Format::Int64 | Format::Float | Format::Double
        )
    }

    /// Whether a text has the format; those of numbers say nothing about texts.
    pub fn accepts(self, text: &str) -> bool {
        match self {
            Format::Int32 | Format::Int64 | Format::Float | Format::Double => true,
            Format::BsonObjectId => text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()),
            Format::Uri => uri::is_request_uri(text),
            Format::Email => email::is_address(text),
            Format::Hostname => network::is_hostname(text),
            Format::Ipv4 => network::is_ipv4(text),
            Format::Ipv6 => network::is_ipv6(text),
            Format::Cidr => network::is_cidr(text),
            Format::Mac => network::is_mac(text),
            Format::Uuid => codes::is_uuid(text, None, false),
            Format::Uuid3 => codes::is_uuid(text, Some('3'), false),
            Format::Uuid4 => codes::is_uuid(text, Some('4'), true),
            Format::Uuid5 => codes::is_uuid(text, Some('5'), true),
            Format::Isbn => codes::is_isbn10(text) || codes::is_isbn13(text),
            Format::Isbn10 => codes::is_isbn10(text),
            Format::Isbn13 => codes::is_isbn13(text),
            Format::CreditCard => codes::is_credit_card(text),
            Format::Ssn => codes::is_ssn(text),
            Format::HexColor => codes::is_hex_color(text),
            Format::RgbColor => codes::is_rgb_color(text),
            Format::Byte => codes::is_base64(text),
            Format::Password => true,
            Format::Date => time::is_date(text),
            Format::Duration => time::is_duration(text),
            Format::DateTime => time::is_date_time(text),
            Format::ShortName => text.len() <= 63 && network::is_name(text),
            Format::LongName => text.len() <= 253 && text.split('.').all(network::is_name),
        }
    }
}
