//! The things a table holds: chains, sets and maps with their elements, and rules.

use std::net::Ipv4Addr;

use super::expression::{Expression, RuleVerdict, write_value, write_verdict};
use crate::netlink::message::Writer;

/// The address family of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    Inet,
    Ipv4,
    Other(u8),
}

impl Family {
    pub fn number(self) -> u8 {
        match self {
            Family::Inet => libc::NFPROTO_INET as u8,
            Family::Ipv4 => libc::NFPROTO_IPV4 as u8,
            Family::Other(number) => number,
        }
    }

    pub fn from_number(number: u8) -> Family {
        match i32::from(number) {
            libc::NFPROTO_INET => Family::Inet,
            libc::NFPROTO_IPV4 => Family::Ipv4,
            _ => Family::Other(number),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookPoint {
    Prerouting = 0,
    Input = 1,
    Forward = 2,
    Output = 3,
    Postrouting = 4,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    Drop,
    Accept,
}

/// Where a base chain is attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// `nat` or `filter`.
    pub kind: &'static str,
    pub point: HookPoint,
    pub priority: i32,
    pub policy: Policy,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    pub name: String,
    pub hook: Option<Hook>,
}

/// What a key or value is made of. The numbers are those the `nft` tool prints by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datatype {
    Address = 7,
    Protocol = 12,
    Port = 13,
    Mark = 19,
}

impl Datatype {
    /// Concatenations pad each part to a register.
    const PADDED: u32 = 4;

    fn of(parts: &[Datatype]) -> (u32, u32) {
        let kind = parts.iter().fold(0, |kind, part| kind << 6 | *part as u32);
        (kind, Datatype::PADDED * parts.len() as u32)
    }
}

/// What a map's keys lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    Values(Vec<Datatype>),
    Verdicts,
}

/// A set, or a map when `data` is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    pub name: String,
    pub key: Vec<Datatype>,
    pub data: Option<Data>,
    /// Filled from the packet path, elements expire: at most this many.
    pub dynamic_size: Option<u32>,
}

/// One element: its key, and for maps its value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Element {
    pub key: Vec<u8>,
    pub value: Option<Vec<u8>>,
    pub verdict: Option<RuleVerdict>,
}

impl Element {
    pub fn key(key: Vec<u8>) -> Element {
        Element {
            key,
            value: None,
            verdict: None,
        }
    }

    pub fn value(key: Vec<u8>, value: Vec<u8>) -> Element {
        Element {
            key,
            value: Some(value),
            verdict: None,
        }
    }

    pub fn verdict(key: Vec<u8>, verdict: RuleVerdict) -> Element {
        Element {
            key,
            value: None,
            verdict: Some(verdict),
        }
    }

    /// `address . protocol . port`, each padded to a register.
    pub fn address_protocol_port(address: Ipv4Addr, protocol: u8, port: u16) -> Vec<u8> {
        let mut key = address.octets().to_vec();
        key.extend(Element::protocol_port(protocol, port));
        key
    }

    /// `protocol . port`.
    pub fn protocol_port(protocol: u8, port: u16) -> Vec<u8> {
        let [high, low] = port.to_be_bytes();
        vec![protocol, 0, 0, 0, high, low, 0, 0]
    }

    /// `address . port`.
    pub fn address_port(address: Ipv4Addr, port: u16) -> Vec<u8> {
        let mut value = address.octets().to_vec();
        value.extend(port.to_be_bytes());
        value.extend([0, 0]);
        value
    }

    /// About how many bytes the element takes in a message.
    pub(super) fn weight(&self) -> usize {
        let verdict = match &self.verdict {
            Some(RuleVerdict::Jump(chain) | RuleVerdict::Goto(chain)) => chain.len() + 32,
            Some(_) => 24,
            None => 0,
        };
        32 + self.key.len() + self.value.as_ref().map_or(0, |value| value.len() + 8) + verdict
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        const NFTA_LIST_ELEM: u16 = 1;
        const NFTA_SET_ELEM_KEY: u16 = 1;
        const NFTA_SET_ELEM_DATA: u16 = 2;
        writer.nested(NFTA_LIST_ELEM, |element| {
            write_value(element, NFTA_SET_ELEM_KEY, &self.key);
            if let Some(value) = &self.value {
                write_value(element, NFTA_SET_ELEM_DATA, value);
            }
            if let Some(verdict) = &self.verdict {
                write_verdict(element, NFTA_SET_ELEM_DATA, verdict);
            }
        });
    }
}

/// A rule and the comment `nft` shows for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub chain: String,
    pub expressions: Vec<Expression>,
    pub comment: Option<String>,
}

impl Rule {
    pub fn new(chain: impl Into<String>, expressions: Vec<Expression>) -> Rule {
        Rule {
            chain: chain.into(),
            expressions,
            comment: None,
        }
    }

    pub fn comment(mut self, comment: impl Into<String>) -> Rule {
        self.comment = Some(comment.into());
        self
    }

    pub(super) fn write(&self, writer: &mut Writer, table: &str) {
        writer.text(1, table);
        writer.text(2, &self.chain);
        writer.nested(4, |expressions| {
            for expression in &self.expressions {
                expression.write(expressions);
            }
        });
        if let Some(comment) = &self.comment {
            writer.attribute(7, &comment_bytes(comment));
        }
    }
}

/// A comment in the form the `nft` tool stores it: type 0, length, text with its closing zero.
pub(super) fn comment_bytes(comment: &str) -> Vec<u8> {
    let end = comment.len().min(120);
    let mut bytes = vec![0, (end + 1) as u8];
    bytes.extend_from_slice(&comment.as_bytes()[..end]);
    bytes.push(0);
    bytes
}

impl Chain {
    pub fn regular(name: impl Into<String>) -> Chain {
        Chain {
            name: name.into(),
            hook: None,
        }
    }

    pub fn base(
        name: impl Into<String>,
        kind: &'static str,
        point: HookPoint,
        priority: i32,
    ) -> Chain {
        let hook = Hook {
            kind,
            point,
            priority,
            policy: Policy::Accept,
        };
        Chain {
            name: name.into(),
            hook: Some(hook),
        }
    }

    pub(super) fn write(&self, writer: &mut Writer, table: &str) {
        writer.text(1, table);
        writer.text(3, &self.name);
        if let Some(hook) = &self.hook {
            writer.nested(4, |attributes| {
                attributes.network_number(1, hook.point as u32);
                attributes.network_number(2, hook.priority as u32);
            });
            writer.network_number(
                5,
                match hook.policy {
                    Policy::Drop => 0,
                    Policy::Accept => 1,
                },
            );
            writer.text(7, hook.kind);
        }
    }
}

impl Set {
    pub(super) fn write(&self, writer: &mut Writer, table: &str, id: u32) {
        const NFT_SET_MAP: u32 = 8;
        const NFT_SET_TIMEOUT: u32 = 0x10;
        const NFT_SET_EVAL: u32 = 0x20;
        const NFT_DATA_VERDICT: u32 = 0xffff_ff00;
        let (key_type, key_length) = Datatype::of(&self.key);
        let mut flags = if self.data.is_some() { NFT_SET_MAP } else { 0 };
        if self.dynamic_size.is_some() {
            flags |= NFT_SET_TIMEOUT | NFT_SET_EVAL;
        }
        writer.text(1, table);
        writer.text(2, &self.name);
        writer.network_number(3, flags);
        writer.network_number(4, key_type);
        writer.network_number(5, key_length);
        match &self.data {
            Some(Data::Verdicts) => writer.network_number(6, NFT_DATA_VERDICT),
            Some(Data::Values(parts)) => {
                let (data_type, data_length) = Datatype::of(parts);
                writer.network_number(6, data_type);
                writer.network_number(7, data_length);
            }
            None => {}
        }
        if let Some(size) = self.dynamic_size {
            writer.nested(9, |description| description.network_number(1, size));
        }
        writer.network_number(10, id);
    }
}
