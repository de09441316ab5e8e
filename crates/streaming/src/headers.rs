//! The headers with which a stream is opened.

/// Names in lower case with their values, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(pub Vec<(String, String)>);

impl Headers {
    pub fn new(pairs: &[(&str, &str)]) -> Headers {
        let own = |(name, value): &(&str, &str)| (name.to_ascii_lowercase(), (*value).to_owned());
        Headers(pairs.iter().map(own).collect())
    }

    /// The first value of a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self
            .0
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.split('\0').next().unwrap_or_default())
    }
}
