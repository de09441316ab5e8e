//! The JSONPath of printer columns: fields, indices, slices, wildcards, unions, filters and recursive
//! descent, as kubectl's templates have them between braces.

use std::cmp::Ordering;

use crate::document::Value;

/// A path that can be followed.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

/// A path that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the JSON path cannot be read")]
pub struct Malformed;

/// A path that does not apply to an object, such as an index of something that is no list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the JSON path does not apply")]
pub struct NotApplicable;

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    Wildcard,
    Recursive,
    Slice {
        from: Option<i64>,
        to: Option<i64>,
        /// Only one index was given, of which the end was made.
        single: bool,
        step: Option<i64>,
    },
    Union(Vec<Vec<Step>>),
    Filter {
        left: Vec<Step>,
        operator: String,
        right: Vec<Step>,
    },
    /// A value of its own, in filters.
    Literal(Value),
    /// `range`, `end` and other words, which columns have no use for.
    Word,
}

impl JsonPath {
    pub fn parse(text: &str) -> Result<JsonPath, Malformed> {
        // Braces would end the template that the path is put into.
        if text.contains(['{', '}']) {
            return Err(Malformed);
        }
        Ok(JsonPath {
            steps: parse(text)?,
        })
    }

    /// The path along these fields.
    pub fn fields(names: &[&str]) -> JsonPath {
        let steps = names.iter().map(|name| Step::Field(name.to_string()));
        JsonPath {
            steps: steps.collect(),
        }
    }

    /// The first value that the path finds.
    pub fn first<'a>(&'a self, object: &'a Value) -> Result<Option<&'a Value>, NotApplicable> {
        Ok(follow(&self.steps, vec![object])?.into_iter().next())
    }

    /// All values that the path finds.
    pub fn find<'a>(&'a self, object: &'a Value) -> Result<Vec<&'a Value>, NotApplicable> {
        follow(&self.steps, vec![object])
    }
}

fn parse(text: &str) -> Result<Vec<Step>, Malformed> {
    let mut steps = Vec::new();
    let mut rest = text;
    while let Some(sign) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("[?(") {
            rest = filter(after, &mut steps)?;
        } else if let Some(after) = rest.strip_prefix("..") {
            if steps.last() == Some(&Step::Recursive) {
                return Err(Malformed);
            }
            steps.push(Step::Recursive);
            rest = match after.starts_with(|sign: char| sign.is_alphanumeric() || sign == '_') {
                true => field(after, &mut steps),
                false => after,
            };
        } else {
            let after = &rest[sign.len_utf8()..];
            rest = match sign {
                '\r' | '\n' => return Err(Malformed),
                ' ' | '@' | '$' => after,
                '[' => array(after, &mut steps)?,
                '"' | '\'' => quoted(rest, sign, &mut steps)?,
                '.' => field(after, &mut steps),
                '+' | '-' | '0'..='9' => number(rest, &mut steps)?,
                sign if sign.is_alphanumeric() || sign == '_' => word(rest, &mut steps),
                _ => return Err(Malformed),
            };
        }
    }
    Ok(steps)
}

fn is_terminator(sign: char) -> bool {
    matches!(
        sign,
        ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}'
    )
}

fn field<'a>(text: &'a str, steps: &mut Vec<Step>) -> &'a str {
    let mut escaped = false;
    let end = text.find(|sign: char| {
        let ends = !escaped && is_terminator(sign);
        escaped = !escaped && sign == '\\';
        ends
    });
    let (name, rest) = text.split_at(end.unwrap_or(text.len()));
    steps.push(match name {
        "*" => Step::Wildcard,
        name => Step::Field(name.replace('\\', "")),
    });
    rest
}

fn word<'a>(text: &'a str, steps: &mut Vec<Step>) -> &'a str {
    let (word, rest) = text.split_at(text.find(is_terminator).unwrap_or(text.len()));
    steps.push(match word {
        "true" => Step::Literal(true.into()),
        "false" => Step::Literal(false.into()),
        _ => Step::Word,
    });
    rest
}

fn number<'a>(text: &'a str, steps: &mut Vec<Step>) -> Result<&'a str, Malformed> {
    let end = text
        .char_indices()
        .find(|(index, sign)| {
            let sign_first = *index == 0 && matches!(sign, '+' | '-');
            !sign_first && !sign.is_ascii_digit() && *sign != '.'
        })
        .map_or(text.len(), |(index, _)| index);
    let (digits, rest) = text.split_at(end);
    let value = match digits.parse::<i64>() {
        Ok(whole) => Value::Integer(whole),
        Err(_) => Value::Float(digits.parse().map_err(|_| Malformed)?),
    };
    steps.push(Step::Literal(value));
    Ok(rest)
}

fn quoted<'a>(text: &'a str, quote: char, steps: &mut Vec<Step>) -> Result<&'a str, Malformed> {
    let bytes = text.as_bytes();
    let end = (1..bytes.len())
        .find(|index| bytes[*index] == quote as u8 && bytes[index - 1] != b'\\')
        .ok_or(Malformed)?;
    if text[..end].contains('\n') {
        return Err(Malformed);
    }
    steps.push(Step::Literal(unquoted(&text[1..end])?.into()));
    Ok(&text[end + 1..])
}

fn unquoted(text: &str) -> Result<String, Malformed> {
    let mut result = String::with_capacity(text.len());
    let mut signs = text.chars();
    while let Some(sign) = signs.next() {
        if sign != '\\' {
            result.push(sign);
            continue;
        }
        result.push(match signs.next() {
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some(sign @ ('\\' | '"' | '\'')) => sign,
            _ => return Err(Malformed),
        });
    }
    Ok(result)
}

/// After `[`: an index, a slice, a key in quotes, or several of them.
fn array<'a>(text: &'a str, steps: &mut Vec<Step>) -> Result<&'a str, Malformed> {
    let (inner, rest) = text.split_once(']').ok_or(Malformed)?;
    if inner.contains('\n') {
        return Err(Malformed);
    }
    let parts: Vec<&str> = inner.split(',').collect();
    match parts.as_slice() {
        [one] => steps.extend(index(one)?),
        several => {
            let several = several.iter().map(|part| index(part.trim_matches(' ')));
            steps.push(Step::Union(several.collect::<Result<_, _>>()?));
        }
    }
    Ok(rest)
}

fn index(text: &str) -> Result<Vec<Step>, Malformed> {
    let key = text
        .strip_prefix('\'')
        .and_then(|text| text.strip_suffix('\''))
        .filter(|key| !key.contains('\'') && !key.is_empty());
    if let Some(key) = key {
        return parse(&format!(".{key}"));
    }
    let text = if text == "*" { ":" } else { text };
    let mut parts = text.split(':');
    let mut next = || -> Result<Option<Option<i64>>, Malformed> {
        let Some(part) = parts.next() else {
            return Ok(None);
        };
        if part.is_empty() {
            return Ok(Some(None));
        }
        let number = part.parse::<i64>().map_err(|_| Malformed)?;
        Ok(Some(Some(number)))
    };
    let from = next()?.flatten();
    let to = next()?;
    let step = next()?.flatten();
    if next()?.is_some() || (text.is_empty()) {
        return Err(Malformed);
    }
    Ok(vec![match to {
        Some(to) => Step::Slice {
            from,
            to,
            single: false,
            step,
        },
        None => Step::Slice {
            from,
            to: Some(from.unwrap_or_default() + 1),
            single: true,
            step,
        },
    }])
}

/// After `[?(`: one path that must be there, or a comparison.
fn filter<'a>(text: &'a str, steps: &mut Vec<Step>) -> Result<&'a str, Malformed> {
    let mut quote = None;
    let mut closed = false;
    let mut before = ' ';
    let end = text
        .char_indices()
        .find(|(_, sign)| {
            let found = match (quote, sign) {
                (None, '"' | '\'') => {
                    quote = Some(*sign);
                    false
                }
                (Some(open), sign) if open == *sign && before != '\\' => {
                    closed = true;
                    false
                }
                (_, ')') => quote.is_some() == closed,
                _ => false,
            };
            before = *sign;
            found
        })
        .map(|(index, _)| index)
        .ok_or(Malformed)?;
    let (inner, rest) = (&text[..end], &text[end + 1..]);
    let rest = rest.strip_prefix(']').ok_or(Malformed)?;
    if inner.contains('\n') {
        return Err(Malformed);
    }
    let is_operator = |sign: char| matches!(sign, '!' | '<' | '>' | '=');
    let comparison = inner.find(is_operator).filter(|start| *start > 0);
    let comparison = comparison.and_then(|start| {
        let (left, rest) = inner.split_at(start);
        let end = rest.find(|sign| !is_operator(sign))?;
        let (operator, right) = rest.split_at(end);
        Some((left, operator, right))
    });
    steps.push(match comparison {
        Some((left, operator, right)) => Step::Filter {
            left: parse(left)?,
            operator: operator.to_string(),
            right: parse(right)?,
        },
        None => Step::Filter {
            left: parse(inner)?,
            operator: String::new(),
            right: Vec::new(),
        },
    });
    Ok(rest)
}

fn follow<'a>(
    steps: &'a [Step],
    mut values: Vec<&'a Value>,
) -> Result<Vec<&'a Value>, NotApplicable> {
    for step in steps {
        values = step.apply(values)?;
    }
    Ok(values)
}

impl Step {
    fn apply<'a>(&'a self, values: Vec<&'a Value>) -> Result<Vec<&'a Value>, NotApplicable> {
        let mut found = Vec::new();
        match self {
            Step::Field(name) => {
                found.extend(values.into_iter().filter_map(|value| value.get(name)));
            }
            Step::Wildcard => {
                for value in values {
                    found.extend(contents(value));
                }
            }
            Step::Recursive => {
                for value in values {
                    descend(value, &mut found);
                }
            }
            Step::Slice {
                from,
                to,
                single,
                step,
            } => {
                for value in values {
                    match value {
                        Value::Null => {}
                        Value::Array(items) => {
                            let range = range(items.len(), *from, *to, *single)?;
                            let step = match step {
                                Some(step) => usize::try_from(*step).map_err(|_| NotApplicable)?,
                                None => 1,
                            };
                            if step == 0 {
                                return Err(NotApplicable);
                            }
                            found.extend(items[range].iter().step_by(step));
                        }
                        _ => return Err(NotApplicable),
                    }
                }
            }
            Step::Union(alternatives) => {
                for steps in alternatives {
                    found.extend(follow(steps, values.clone())?);
                }
            }
            Step::Filter {
                left,
                operator,
                right,
            } => {
                for value in values {
                    let Value::Array(items) = value else {
                        return Err(NotApplicable);
                    };
                    for item in items {
                        if passes(item, left, operator, right)? {
                            found.push(item);
                        }
                    }
                }
            }
            Step::Literal(value) => found.extend(values.iter().map(|_| value)),
            Step::Word => return Err(NotApplicable),
        }
        Ok(found)
    }
}

fn contents(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(fields) => fields.iter().map(|(_, value)| value).collect(),
        _ => Vec::new(),
    }
}

/// The value, if it holds others, and all of those below it that do. Documents are bounded in depth.
fn descend<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    let below = contents(value);
    if !below.is_empty() {
        found.push(value);
        for value in below {
            descend(value, found);
        }
    }
}

fn range(
    length: usize,
    from: Option<i64>,
    to: Option<i64>,
    single: bool,
) -> Result<std::ops::Range<usize>, NotApplicable> {
    let length = length as i64;
    let mut from = from.unwrap_or_default();
    let mut to = to.unwrap_or(length);
    if from < 0 {
        from += length;
    }
    if to < 0 || (to == 0 && single) {
        to += length;
    }
    if from == to {
        return Ok(0..0);
    }
    if from < 0 || from >= length || to < 0 || to > length || from > to {
        return Err(NotApplicable);
    }
    Ok(from as usize..to as usize)
}

fn passes(
    item: &Value,
    left: &[Step],
    operator: &str,
    right: &[Step],
) -> Result<bool, NotApplicable> {
    let lefts = follow(left, vec![item]);
    if operator.is_empty() {
        return Ok(lefts.is_ok_and(|found| !found.is_empty()));
    }
    let (lefts, rights) = (lefts?, follow(right, vec![item])?);
    let (left, right) = match (lefts.as_slice(), rights.as_slice()) {
        ([], _) | (_, []) => return Ok(false),
        ([left], [right]) => (*left, *right),
        _ => return Err(NotApplicable),
    };
    let ordering = match (left, right) {
        (Value::Bool(left), Value::Bool(right)) => {
            return match operator {
                "==" => Ok(left == right),
                "!=" => Ok(left != right),
                _ => Err(NotApplicable),
            };
        }
        (Value::Integer(left), Value::Integer(right)) => left.cmp(right),
        (Value::Float(left), Value::Float(right)) => {
            left.partial_cmp(right).unwrap_or(Ordering::Less)
        }
        (Value::String(left), Value::String(right)) => left.cmp(right),
        _ => return Err(NotApplicable),
    };
    Ok(match operator {
        "<" => ordering.is_lt(),
        ">" => ordering.is_gt(),
        "==" => ordering.is_eq(),
        "!=" => ordering.is_ne(),
        "<=" => ordering.is_le(),
        ">=" => ordering.is_ge(),
        _ => return Err(NotApplicable),
    })
}
