//! The options of `/containerLogs`, from its query.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::query::pairs;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    pub follow: bool,
    pub previous: bool,
    pub timestamps: bool,
    pub tail_lines: Option<usize>,
    pub since: Option<Timestamp>,
    pub limit_bytes: Option<usize>,
}

/// An option whose value makes no sense.
#[derive(Debug, thiserror::Error)]
#[error("invalid value {value:?} for {key}")]
pub struct InvalidOption {
    key: String,
    value: String,
}

impl LogOptions {
    pub fn parse(query: &str, now: Timestamp) -> Result<LogOptions, InvalidOption> {
        let mut options = LogOptions::default();
        for (key, value) in pairs(query) {
            let bad = || InvalidOption {
                key: key.clone(),
                value: value.clone(),
            };
            let flag = || {
                value.parse::<bool>().or_else(|_| match value.as_str() {
                    "1" | "" => Ok(true),
                    "0" => Ok(false),
                    _ => Err(bad()),
                })
            };
            let number = || {
                let number = value.parse::<i64>().map_err(|_| bad())?;
                usize::try_from(number).map_err(|_| bad())
            };
            match key.as_str() {
                "follow" => options.follow = flag()?,
                "previous" => options.previous = flag()?,
                "timestamps" => options.timestamps = flag()?,
                "tailLines" => options.tail_lines = Some(number()?),
                "limitBytes" => options.limit_bytes = Some(number()?),
                "sinceSeconds" => {
                    let seconds = number()? as i64;
                    options.since = now.checked_sub(SignedDuration::from_secs(seconds)).ok();
                }
                "sinceTime" => options.since = Some(value.parse().map_err(|_| bad())?),
                _ => {}
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_parsed_and_wrong_ones_are_rejected() {
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().expect("a time");
        let options =
            LogOptions::parse("follow=true&tailLines=5&sinceSeconds=60&timestamps=1", now)
                .expect("options");
        assert!(options.follow && options.timestamps && !options.previous);
        assert_eq!(options.tail_lines, Some(5));
        assert_eq!(
            options.since,
            Some("2026-01-01T00:00:00Z".parse().expect("a time"))
        );
        let options =
            LogOptions::parse("sinceTime=2026-01-01T00%3A00%3A00Z", now).expect("options");
        assert!(options.since.is_some());
        assert!(LogOptions::parse("tailLines=-1", now).is_err());
        assert!(LogOptions::parse("follow=maybe", now).is_err());
    }
}
