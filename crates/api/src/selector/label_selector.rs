//! Label selectors, in text (`a=b,c in (d,e),!f`) and as documents (`matchLabels`,
//! `matchExpressions`).

use std::fmt;

use crate::document::{Object, Value};
use crate::field::{FieldError, Path};
use crate::metadata::names;
use crate::selector::Error;
use crate::selector::lexer::{self, Token};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    In,
    NotIn,
    Equals,
    DoubleEquals,
    NotEquals,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

/// One condition on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    pub key: String,
    pub operator: Operator,
    /// Sorted, without repeats.
    pub values: Vec<String>,
}

/// A conjunction of requirements; the empty one matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
    /// Set for a missing selector in a document, which matches nothing.
    nothing: bool,
}

impl LabelSelector {
    pub fn everything() -> LabelSelector {
        LabelSelector::default()
    }

    pub fn nothing() -> LabelSelector {
        LabelSelector {
            nothing: true,
            ..LabelSelector::default()
        }
    }

    /// Reads the text form of a `labelSelector` parameter.
    pub fn parse(text: &str) -> Result<LabelSelector, Error> {
        let mut parser = Parser {
            tokens: lexer::tokens(text),
            position: 0,
        };
        Ok(LabelSelector::of(parser.selector()?))
    }

    /// Reads `{matchLabels, matchExpressions}`. Null matches nothing, `{}` everything.
    pub fn from_document(document: &Value) -> Result<LabelSelector, Error> {
        if document.is_null() {
            return Ok(LabelSelector::nothing());
        }
        let mut requirements = Vec::new();
        let labels = document.get("matchLabels").and_then(Value::as_object);
        for (key, value) in labels.into_iter().flat_map(|labels| labels.iter()) {
            let values = vec![value.as_str().unwrap_or_default().to_string()];
            requirements.push(requirement(key, Operator::Equals, values)?);
        }
        let expressions = document.get("matchExpressions").and_then(Value::as_array);
        for expression in expressions.into_iter().flatten() {
            let operator = match expression.str_at(&["operator"]) {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => {
                    return Err(Error(format!(
                        "{other:?} is not a valid label selector operator"
                    )));
                }
            };
            let values = expression.get("values").and_then(Value::as_array);
            let values = values.into_iter().flatten().filter_map(Value::as_str);
            let values = values.map(str::to_string).collect();
            requirements.push(requirement(expression.str_at(&["key"]), operator, values)?);
        }
        Ok(LabelSelector::of(requirements))
    }

    /// The selector that demands all of these.
    pub fn of(mut requirements: Vec<Requirement>) -> LabelSelector {
        requirements.sort_by(|one, other| one.key.cmp(&other.key));
        LabelSelector {
            requirements,
            nothing: false,
        }
    }

    /// A map of labels that must all be equal, as in a Service's selector.
    pub fn from_map(labels: &Object) -> LabelSelector {
        let requirements = labels.iter().map(|(key, value)| Requirement {
            key: key.to_string(),
            operator: Operator::Equals,
            values: vec![value.as_str().unwrap_or_default().to_string()],
        });
        LabelSelector {
            requirements: requirements.collect(),
            nothing: false,
        }
    }

    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    pub fn is_everything(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }

    /// Matches against `metadata.labels` of an object.
    pub fn matches_object(&self, object: &Value) -> bool {
        let labels = object
            .at(&["metadata", "labels"])
            .and_then(Value::as_object);
        self.matches(|key| labels?.get(key)?.as_str())
    }

    /// Matches against labels looked up by key.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        !self.nothing
            && self
                .requirements
                .iter()
                .all(|requirement| requirement.matches(label(&requirement.key)))
    }
}

impl Requirement {
    /// Checks the key and the values.
    pub fn new(key: &str, operator: Operator, values: Vec<String>) -> Result<Requirement, Error> {
        requirement(key, operator, values)
    }

    /// Whether a label's value (`None` when absent) satisfies it.
    pub fn matches(&self, value: Option<&str>) -> bool {
        let listed = |value: &str| {
            let found = self.values.binary_search_by(|one| one.as_str().cmp(value));
            found.is_ok()
        };
        match self.operator {
            Operator::In | Operator::Equals | Operator::DoubleEquals => value.is_some_and(listed),
            Operator::NotIn | Operator::NotEquals => !value.is_some_and(listed),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan | Operator::LessThan => {
                let label = value.and_then(|value| value.parse::<i64>().ok());
                let bound = self.values.first().and_then(|text| text.parse().ok());
                match (label, bound) {
                    (Some(label), Some(bound)) if self.operator == Operator::GreaterThan => {
                        label > bound
                    }
                    (Some(label), Some(bound)) => label < bound,
                    _ => false,
                }
            }
        }
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            if index > 0 {
                formatter.write_str(",")?;
            }
            write!(formatter, "{requirement}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, values) = (&self.key, self.values.join(","));
        match self.operator {
            Operator::In => write!(formatter, "{key} in ({values})"),
            Operator::NotIn => write!(formatter, "{key} notin ({values})"),
            Operator::Equals => write!(formatter, "{key}={values}"),
            Operator::DoubleEquals => write!(formatter, "{key}=={values}"),
            Operator::NotEquals => write!(formatter, "{key}!={values}"),
            Operator::Exists => write!(formatter, "{key}"),
            Operator::DoesNotExist => write!(formatter, "!{key}"),
            Operator::GreaterThan => write!(formatter, "{key}>{values}"),
            Operator::LessThan => write!(formatter, "{key}<{values}"),
        }
    }
}

struct Parser {
    tokens: Vec<(Token, String)>,
    position: usize,
}

impl Parser {
    /// The token here; `in` and `notin` are only operators where an operator may stand.
    fn peek(&self, operator: bool) -> (Token, &str) {
        let (token, literal) = &self.tokens[self.position.min(self.tokens.len() - 1)];
        let token = match token {
            Token::In | Token::NotIn if !operator => Token::Identifier,
            other => *other,
        };
        (token, literal)
    }

    fn take(&mut self, operator: bool) -> (Token, String) {
        let (token, literal) = self.peek(operator);
        let taken = (token, literal.to_string());
        self.position += 1;
        taken
    }

    fn selector(&mut self) -> Result<Vec<Requirement>, Error> {
        let mut requirements = Vec::new();
        loop {
            let (token, literal) = self.peek(false);
            match token {
                Token::Identifier | Token::Not => {
                    let requirement = self
                        .requirement()
                        .map_err(|error| Error(format!("unable to parse requirement: {error}")))?;
                    requirements.push(requirement);
                    let (token, literal) = self.take(false);
                    match token {
                        Token::End => return Ok(requirements),
                        Token::Comma => {
                            let (next, literal) = self.peek(false);
                            if !matches!(next, Token::Identifier | Token::Not) {
                                return Err(Error(format!(
                                    "found '{literal}', expected: identifier after ','"
                                )));
                            }
                        }
                        _ => {
                            return Err(Error(format!(
                                "found '{literal}', expected: ',' or 'end of string'"
                            )));
                        }
                    }
                }
                Token::End => return Ok(requirements),
                _ => {
                    return Err(Error(format!(
                        "found '{literal}', expected: !, identifier, or 'end of string'"
                    )));
                }
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, Error> {
        let mut negated = false;
        let (mut token, mut literal) = self.take(false);
        if token == Token::Not {
            negated = true;
            (token, literal) = self.take(false);
        }
        if token != Token::Identifier {
            return Err(Error(format!("found '{literal}', expected: identifier")));
        }
        let wrong = names::qualified_name(&literal);
        if !wrong.is_empty() {
            let error = FieldError::invalid(&Path::new(""), literal, wrong.join("; "));
            return Err(Error(error.to_string()));
        }
        if negated {
            return requirement(&literal, Operator::DoesNotExist, Vec::new());
        }
        if matches!(self.peek(false).0, Token::End | Token::Comma) {
            return requirement(&literal, Operator::Exists, Vec::new());
        }
        let operator = self.operator()?;
        let values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => vec![self.exact_value()?],
        };
        requirement(&literal, operator, values)
    }

    fn operator(&mut self) -> Result<Operator, Error> {
        let (token, literal) = self.take(true);
        Ok(match token {
            Token::In => Operator::In,
            Token::Equals => Operator::Equals,
            Token::DoubleEquals => Operator::DoubleEquals,
            Token::GreaterThan => Operator::GreaterThan,
            Token::LessThan => Operator::LessThan,
            Token::NotIn => Operator::NotIn,
            Token::NotEquals => Operator::NotEquals,
            _ => {
                return Err(Error(format!(
                    "found '{literal}', expected: in, notin, =, ==, !=, gt, lt"
                )));
            }
        })
    }

    fn values(&mut self) -> Result<Vec<String>, Error> {
        let (token, literal) = self.take(false);
        if token != Token::Open {
            return Err(Error(format!("found '{literal}' expected: '('")));
        }
        let (token, literal) = self.peek(false);
        match token {
            Token::Identifier | Token::Comma => {
                let first = literal.to_string();
                let values = self.identifiers()?;
                match self.take(false).0 {
                    Token::Close => Ok(values),
                    _ => Err(Error(format!("found '{first}', expected: ')'"))),
                }
            }
            Token::Close => {
                self.position += 1;
                Ok(vec![String::new()])
            }
            _ => Err(Error(format!(
                "found '{literal}', expected: ',', ')' or identifier"
            ))),
        }
    }

    /// A comma-separated list in which items may be empty.
    fn identifiers(&mut self) -> Result<Vec<String>, Error> {
        let mut values = Vec::new();
        loop {
            let (token, literal) = self.take(false);
            match token {
                Token::Identifier => {
                    values.push(literal);
                    let (next, literal) = self.peek(false);
                    match next {
                        Token::Comma => continue,
                        Token::Close => return Ok(values),
                        _ => {
                            return Err(Error(format!("found '{literal}', expected: ',' or ')'")));
                        }
                    }
                }
                Token::Comma => {
                    if values.is_empty() {
                        values.push(String::new());
                    }
                    match self.peek(false).0 {
                        Token::Close => {
                            values.push(String::new());
                            return Ok(values);
                        }
                        Token::Comma => values.push(String::new()),
                        _ => {}
                    }
                }
                _ => {
                    return Err(Error(format!(
                        "found '{literal}', expected: ',', or identifier"
                    )));
                }
            }
        }
    }

    fn exact_value(&mut self) -> Result<String, Error> {
        if matches!(self.peek(false).0, Token::End | Token::Comma) {
            return Ok(String::new());
        }
        let (token, literal) = self.take(false);
        match token {
            Token::Identifier => Ok(literal),
            _ => Err(Error(format!("found '{literal}', expected: identifier"))),
        }
    }
}

/// Makes a requirement after checking key and values.
fn requirement(
    key: &str,
    operator: Operator,
    mut values: Vec<String>,
) -> Result<Requirement, Error> {
    let mut errors = Vec::new();
    let wrong = names::qualified_name(key);
    if !wrong.is_empty() {
        errors.push(FieldError::invalid(
            &Path::new("key"),
            key,
            wrong.join("; "),
        ));
    }
    values.sort();
    values.dedup();
    let path = Path::new("values");
    let listed = || Value::Array(values.iter().map(|value| value.as_str().into()).collect());
    match operator {
        Operator::In | Operator::NotIn if values.is_empty() => errors.push(FieldError::invalid(
            &path,
            listed(),
            "for 'in', 'notin' operators, values set can't be empty",
        )),
        Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
            errors.push(FieldError::invalid(
                &path,
                listed(),
                "values set must be empty for exists and does not exist",
            ));
        }
        Operator::GreaterThan | Operator::LessThan => {
            for (index, value) in values.iter().enumerate() {
                if value.parse::<i64>().is_err() {
                    errors.push(FieldError::invalid(
                        &path.index(index),
                        value.as_str(),
                        "for 'Gt', 'Lt' operators, the value must be an integer",
                    ));
                }
            }
        }
        _ => {}
    }
    for (index, value) in values.iter().enumerate() {
        let wrong = names::label_value(value);
        if !wrong.is_empty() {
            errors.push(FieldError::invalid(
                &path.index(index).key(key),
                value.as_str(),
                wrong.join("; "),
            ));
        }
    }
    match errors.as_slice() {
        [] => Ok(Requirement {
            key: key.to_string(),
            operator,
            values,
        }),
        [only] => Err(Error(only.to_string())),
        several => {
            let texts: Vec<String> = several.iter().map(FieldError::to_string).collect();
            Err(Error(format!("[{}]", texts.join(", "))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document;

    #[test]
    fn matching() {
        let object = document!({"metadata": {"labels": {"app": "web", "tier": "", "n": "5"}}});
        let check = |text: &str, expected: bool| {
            let selector = LabelSelector::parse(text).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(selector.matches_object(&object), expected, "{text}");
        };
        check("", true);
        check("app=web", true);
        check("app==web,tier=", true);
        check("app!=web", false);
        check("missing!=x", true);
        check("app in (db, web)", true);
        check("app notin (db,web)", false);
        check("missing notin (a)", true);
        check("app", true);
        check("!app", false);
        check("!missing,app", true);
        check("tier in ()", true);
        check("n>4,n<6", true);
        check("n>5", false);
        check("app>1", false);
        check("in in (in)", false);
    }

    #[test]
    fn errors_are_upstreams() {
        let check = |text: &str, expected: &str| {
            assert_eq!(
                LabelSelector::parse(text).unwrap_err().0,
                expected,
                "{text}"
            );
        };
        check("a,", "found '', expected: identifier after ','");
        check(
            ",a",
            "found ',', expected: !, identifier, or 'end of string'",
        );
        check(
            "a b",
            "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
        );
        check(
            "a in b",
            "unable to parse requirement: found 'b' expected: '('",
        );
        check(
            "a in (b",
            "unable to parse requirement: found '', expected: ',' or ')'",
        );
        check("a=b c", "found 'c', expected: ',' or 'end of string'");
        check(
            "!!a",
            "unable to parse requirement: found '!', expected: identifier",
        );
        check(
            "a>b",
            r#"unable to parse requirement: values[0]: Invalid value: "b": for 'Gt', 'Lt' operators, the value must be an integer"#,
        );
        check(
            "-a",
            r#"unable to parse requirement: <nil>: Invalid value: "-a": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
        );
    }

    #[test]
    fn documents() {
        let object = document!({"metadata": {"labels": {"app": "web"}}});
        let check = |selector: Value, expected: bool| {
            let parsed = LabelSelector::from_document(&selector).unwrap();
            assert_eq!(parsed.matches_object(&object), expected, "{selector}");
        };
        check(Value::Null, false);
        check(document!({}), true);
        check(document!({"matchLabels": {"app": "web"}}), true);
        check(document!({"matchLabels": {"app": "db"}}), false);
        check(
            document!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}),
            true,
        );
        check(
            document!({"matchExpressions": [{"key": "x", "operator": "Exists"}]}),
            false,
        );
        let bad = document!({"matchExpressions": [{"key": "x", "operator": "Like"}]});
        assert!(LabelSelector::from_document(&bad).is_err());
    }

    #[test]
    fn text_form() {
        let check = |text: &str, expected: &str| {
            assert_eq!(LabelSelector::parse(text).unwrap().to_string(), expected);
        };
        check("b , a=1", "a=1,b");
        check("x in (c, a,b),!z", "x in (a,b,c),!z");
    }
}
