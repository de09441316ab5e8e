//! Chooses the pod and service range of a cluster: they overlap neither those of another cluster of
//! this machine nor a network of the machine itself. Without I/O.

use anyhow::{Result, bail};
use network::host_ranges::{HostNetwork, IpRange};

/// The purpose of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Pods,
    Services,
}

impl Purpose {
    pub fn words(self) -> &'static str {
        match self {
            Purpose::Pods => "pod range",
            Purpose::Services => "service range",
        }
    }

    fn flag(self) -> &'static str {
        match self {
            Purpose::Pods => "--pod-range",
            Purpose::Services => "--service-range",
        }
    }

    /// The ranges to try where the user chose none; upstream's default is the first.
    fn candidates(self) -> Vec<String> {
        let elsewhere = || (16..32).rev().map(|second| format!("172.{second}.0.0/16"));
        match self {
            // 10.244.0.0/16 and downwards.
            Purpose::Pods => (181..=244)
                .rev()
                .map(|second| format!("10.{second}.0.0/16"))
                .chain(elsewhere())
                .collect(),
            // 10.96.0.0/12, 10.112.0.0/12, … up to 10.224.0.0/12.
            Purpose::Services => (96..=224)
                .step_by(16)
                .map(|second| format!("10.{second}.0.0/12"))
                .chain(elsewhere())
                .collect(),
        }
    }
}

/// A range that is in use, and by what.
#[derive(Clone, Debug)]
pub struct Occupied {
    pub range: IpRange,
    pub holder: String,
}

impl Occupied {
    /// `None` for an unknown range, as in claims of earlier versions.
    pub fn new(range: &str, holder: String) -> Option<Occupied> {
        let range = range.parse().ok()?;
        Some(Occupied { range, holder })
    }

    pub fn by_host(networks: &[HostNetwork]) -> impl Iterator<Item = Occupied> + '_ {
        networks.iter().map(|network| Occupied {
            range: network.range,
            holder: network.description.clone(),
        })
    }
}

/// A range for a cluster, and a note where it is not the default.
#[derive(Debug, PartialEq, Eq)]
pub struct Chosen {
    pub range: String,
    pub note: Option<String>,
}

/// The range that the user chose, or else the first free one.
pub fn choose(purpose: Purpose, wish: Option<&str>, occupied: &[Occupied]) -> Result<Chosen> {
    let Some(wish) = wish else {
        return automatic(purpose, occupied);
    };
    let range = match wish.parse::<IpRange>() {
        Ok(range) => range,
        Err(error) => bail!("{} {error}", purpose.flag()),
    };
    if let Some(holder) = holder(&range, occupied) {
        let advice = match automatic(purpose, occupied) {
            Ok(free) => format!("choose another, such as {}", free.range),
            Err(_) => "choose another".to_owned(),
        };
        bail!("{} {wish} overlaps {holder}: {advice}", purpose.flag());
    }
    Ok(Chosen {
        range: range.to_string(),
        note: None,
    })
}

/// The user of a range that overlaps `range`.
pub fn holder<'a>(range: &IpRange, occupied: &'a [Occupied]) -> Option<&'a str> {
    let found = occupied.iter().find(|other| other.range.overlaps(range));
    found.map(|other| other.holder.as_str())
}

fn automatic(purpose: Purpose, occupied: &[Occupied]) -> Result<Chosen> {
    let mut note = None;
    for candidate in purpose.candidates() {
        let range: IpRange = candidate.parse()?;
        match holder(&range, occupied) {
            None => {
                let because = |why: String| format!("The {} is {range}: {why}.", purpose.words());
                return Ok(Chosen {
                    note: note.map(because),
                    range: candidate,
                });
            }
            // The note explains why the default is not free.
            Some(holder) => {
                note.get_or_insert_with(|| format!("{range} overlaps {holder}"));
            }
        }
    }
    bail!(
        "no {} is free of this machine's networks and of other clusters: choose one with {}",
        purpose.words(),
        purpose.flag()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn occupied(ranges: &[(&str, &str)]) -> Vec<Occupied> {
        ranges
            .iter()
            .map(|(range, holder)| Occupied::new(range, (*holder).to_owned()).unwrap())
            .collect()
    }

    #[test]
    fn default_ranges_avoid_the_networks_of_the_machine() {
        let check = |purpose, taken: &[(&str, &str)], range: &str, note: Option<&str>| {
            let chosen = choose(purpose, None, &occupied(taken)).unwrap();
            assert_eq!(
                (chosen.range.as_str(), chosen.note.as_deref()),
                (range, note)
            );
        };
        check(Purpose::Pods, &[], "10.244.0.0/16", None);
        check(Purpose::Services, &[], "10.96.0.0/12", None);
        check(
            Purpose::Pods,
            &[("192.0.2.0/24", "x"), ("fd00::/8", "y")],
            "10.244.0.0/16",
            None,
        );
        check(
            Purpose::Pods,
            &[
                ("10.244.7.0/24", "the route 10.244.7.0/24 dev eth1"),
                ("10.243.0.1/32", "z"),
            ],
            "10.242.0.0/16",
            Some(
                "The pod range is 10.242.0.0/16: 10.244.0.0/16 overlaps the route 10.244.7.0/24 dev eth1.",
            ),
        );
        check(
            Purpose::Services,
            &[(
                "10.96.0.1/32",
                "the gateway of the default route via 10.96.0.1",
            )],
            "10.112.0.0/12",
            Some(
                "The service range is 10.112.0.0/12: 10.96.0.0/12 overlaps the gateway of the default route via 10.96.0.1.",
            ),
        );
        check(
            Purpose::Services,
            &[("10.0.0.0/8", "a VPN"), ("172.31.0.0/16", "x")],
            "172.30.0.0/16",
            Some("The service range is 172.30.0.0/16: 10.96.0.0/12 overlaps a VPN."),
        );
        let all = occupied(&[("0.0.0.0/1", "a"), ("128.0.0.0/1", "b")]);
        assert!(choose(Purpose::Pods, None, &all).is_err());
    }

    #[test]
    fn a_conflicting_range_is_rejected_with_the_network_it_overlaps() {
        let taken = occupied(&[("10.96.0.0/24", "the route 10.96.0.0/24 dev eth1")]);
        let refused = |wish: &str| {
            let error = choose(Purpose::Services, Some(wish), &taken).unwrap_err();
            error.to_string()
        };
        assert_eq!(
            refused("10.96.0.0/12"),
            "--service-range 10.96.0.0/12 overlaps the route 10.96.0.0/24 dev eth1: choose another, such as 10.112.0.0/12"
        );
        assert!(refused("10.96.0.128/25").contains("overlaps the route"));
        assert_eq!(
            refused("banana"),
            "--service-range \"banana\" is not a range of addresses such as 10.96.0.0/12"
        );
        // Host bits are not part of a range.
        let chosen = choose(Purpose::Services, Some("10.97.3.7/16"), &taken).unwrap();
        assert_eq!(chosen.range, "10.97.0.0/16");
    }
}
