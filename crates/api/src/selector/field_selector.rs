//! Field selectors: `metadata.name=web,status.phase!=Running`.

use std::fmt;

use crate::selector::Error;

/// One condition on one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRequirement {
    pub field: String,
    pub value: String,
    /// Whether the field must differ from the value.
    pub negated: bool,
}

/// A conjunction of conditions; the empty one matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    requirements: Vec<FieldRequirement>,
}

/// A field that a kind has no other name for.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("field label not supported: {0}")]
pub struct UnknownField(String);

impl FieldSelector {
    /// Reads the text form of a `fieldSelector` parameter.
    pub fn parse(text: &str) -> Result<FieldSelector, Error> {
        let mut requirements = Vec::new();
        for term in terms(text) {
            if term.is_empty() {
                continue;
            }
            let invalid = || {
                Error(format!(
                    "invalid selector: '{text}'; can't understand '{term}'"
                ))
            };
            let at = term.find(['=', '!']).ok_or_else(invalid)?;
            let rest = &term[at..];
            let (negated, value) = if let Some(value) = rest.strip_prefix("!=") {
                (true, value)
            } else if let Some(value) = rest.strip_prefix("==") {
                (false, value)
            } else if let Some(value) = rest.strip_prefix('=') {
                (false, value)
            } else {
                // A lone `!`: upstream looks further for an operator.
                let at = term.find('=').ok_or_else(invalid)?;
                requirements.push(FieldRequirement {
                    field: term[..at].to_string(),
                    value: unescape(&term[at + 1..])?,
                    negated: false,
                });
                continue;
            };
            requirements.push(FieldRequirement {
                field: term[..at].to_string(),
                value: unescape(value)?,
                negated,
            });
        }
        Ok(FieldSelector { requirements })
    }

    /// The same selector over fields of other names.
    pub fn renamed(
        mut self,
        rename: impl Fn(&str) -> Option<&str>,
    ) -> Result<FieldSelector, UnknownField> {
        for requirement in &mut self.requirements {
            match rename(&requirement.field) {
                Some(name) if name == requirement.field => {}
                Some(name) => requirement.field = name.to_string(),
                None => return Err(UnknownField(requirement.field.clone())),
            }
        }
        Ok(self)
    }

    pub fn requirements(&self) -> &[FieldRequirement] {
        &self.requirements
    }

    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The value `field` must have, where the selector demands exactly one.
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.requirements
            .iter()
            .find(|requirement| requirement.field == field && !requirement.negated)
            .map(|requirement| requirement.value.as_str())
    }

    /// Matches against selectable fields, which `value_of` tells; an absent field counts as empty.
    pub fn matches<'a>(&self, value_of: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = value_of(&requirement.field).unwrap_or_default();
            (value == requirement.value) != requirement.negated
        })
    }

    /// The first field named that is not supported.
    pub fn unsupported(&self, is_supported: impl Fn(&str) -> bool) -> Option<&str> {
        self.requirements
            .iter()
            .map(|requirement| requirement.field.as_str())
            .find(|field| !is_supported(field))
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            if index > 0 {
                formatter.write_str(",")?;
            }
            let operator = if requirement.negated { "!=" } else { "=" };
            let value = escape(&requirement.value);
            write!(formatter, "{}{operator}{value}", requirement.field)?;
        }
        Ok(())
    }
}

/// Splits at commas that are not escaped.
fn terms(text: &str) -> Vec<&str> {
    if text.is_empty() {
        return Vec::new();
    }
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (index, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn unescape(text: &str) -> Result<String, Error> {
    let mut value = String::with_capacity(text.len());
    let mut characters = text.chars();
    let sequence = |found: &str| {
        Error(format!(
            "invalid field selector: invalid escape sequence: \\{found}"
        ))
    };
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => value.push(escaped),
                Some(other) => return Err(sequence(&other.to_string())),
                None => return Err(sequence("")),
            },
            ',' | '=' => {
                return Err(Error(format!(
                    "invalid field selector: unescaped character in value: {}",
                    character as u32
                )));
            }
            other => value.push(other),
        }
    }
    Ok(value)
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if matches!(character, '\\' | ',' | '=') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str) -> Option<&'static str> {
        Some(match name {
            "metadata.name" => "web",
            "status.phase" => "Running",
            "spec.nodeName" => "",
            _ => return None,
        })
    }

    #[test]
    fn matching() {
        let check = |text: &str, expected: bool| {
            let selector = FieldSelector::parse(text).unwrap();
            assert_eq!(selector.matches(field), expected, "{text}");
        };
        check("", true);
        check("metadata.name=web", true);
        check("metadata.name==web,status.phase=Running", true);
        check("metadata.name=web,status.phase!=Running", false);
        check("spec.nodeName=", true);
        check("spec.nodeName!=", false);
        check("status.phase!=Failed,", true);
    }

    #[test]
    fn escapes_and_errors() {
        let selector = FieldSelector::parse(r"reason=a\,b\=c\\d").unwrap();
        assert_eq!(selector.exact("reason"), Some(r"a,b=c\d"));
        assert_eq!(selector.to_string(), r"reason=a\,b\=c\\d");
        let check = |text: &str, expected: &str| {
            assert_eq!(FieldSelector::parse(text).unwrap_err().0, expected);
        };
        check(
            "metadata.name",
            "invalid selector: 'metadata.name'; can't understand 'metadata.name'",
        );
        check(
            "a=b=c",
            "invalid field selector: unescaped character in value: 61",
        );
        check(
            r"a=\x",
            r"invalid field selector: invalid escape sequence: \x",
        );
    }

    #[test]
    fn unsupported_fields_are_named() {
        let selector = FieldSelector::parse("metadata.name=a,spec.image=b").unwrap();
        let unsupported = selector.unsupported(|name| field(name).is_some());
        assert_eq!(unsupported, Some("spec.image"));
    }
}
