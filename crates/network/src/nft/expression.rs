//! The expressions of a rule: each reads and writes 32-bit registers of the kernel's virtual machine.

use std::net::Ipv4Addr;

use crate::netlink::message::Writer;
use crate::subnet::Subnet;

/// One of sixteen 32-bit registers. Longer values lie in consecutive registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register(pub u8);

impl Register {
    fn number(self) -> u32 {
        debug_assert!(self.0 < 16);
        8 + u32::from(self.0)
    }
}

const VERDICT_REGISTER: u32 = 0;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuleVerdict {
    Accept,
    Drop,
    Return,
    Jump(String),
    Goto(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    Network,
    Transport,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaKey {
    Mark = 3,
    IncomingName = 6,
    OutgoingName = 7,
    NetworkProtocol = 15,
    TransportProtocol = 16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CtKey {
    State = 0,
    Status = 2,
    Protocol = 10,
    DestinationPort = 12,
    DestinationAddress = 20,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CtDirection {
    Original = 0,
    Reply = 1,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    Equal = 0,
    NotEqual = 1,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FibAddress {
    Source = 1,
    Destination = 2,
}

/// The expressions we use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression {
    Meta {
        key: MetaKey,
        to: Register,
    },
    Payload {
        header: Header,
        offset: u32,
        length: u32,
        to: Register,
    },
    Ct {
        key: CtKey,
        direction: Option<CtDirection>,
        to: Register,
    },
    /// The kind of an address as routing sees it (`RTN_LOCAL` is 2), as a host-order number.
    FibType {
        of: FibAddress,
        to: Register,
    },
    /// A random number below `modulus`, in host order.
    Random {
        modulus: u32,
        to: Register,
    },
    Bitwise {
        from: Register,
        to: Register,
        mask: Vec<u8>,
        xor: Vec<u8>,
    },
    Compare {
        from: Register,
        comparison: Comparison,
        value: Vec<u8>,
    },
    /// Ends the rule unless the key at `from` is (or with `inverted` is not) in the set.
    InSet {
        set: String,
        from: Register,
        inverted: bool,
    },
    /// Replaces the key at `from` by the map's value at `to`; ends the rule when there is none.
    Map {
        map: String,
        from: Register,
        to: Register,
    },
    /// Follows the verdict found in the map; ends the rule when there is none.
    VerdictMap {
        map: String,
        from: Register,
    },
    /// Adds or refreshes an element from inside the packet path.
    Remember {
        set: String,
        key: Register,
        timeout_seconds: u64,
    },
    Value {
        value: Vec<u8>,
        to: Register,
    },
    Decide(RuleVerdict),
    DestinationNat {
        address: Register,
        port: Option<Register>,
    },
    SourceNat {
        address: Register,
    },
    Masquerade,
    /// Delivers to this machine, at the port in the register when given.
    Redirect {
        port: Option<Register>,
    },
    /// Answers with ICMP "port unreachable".
    RejectPort,
    /// Answers a TCP segment with a reset.
    RejectReset,
    Counter,
}

/// Short ways to write frequent expressions.
impl Expression {
    /// Ends the rule unless the key at `from` is in the set.
    pub fn in_set(set: &str, from: Register) -> Expression {
        Expression::InSet {
            set: set.to_owned(),
            from,
            inverted: false,
        }
    }

    pub fn map(map: &str, from: Register, to: Register) -> Expression {
        let map = map.to_owned();
        Expression::Map { map, from, to }
    }

    pub fn verdict_map(map: &str, from: Register) -> Expression {
        let map = map.to_owned();
        Expression::VerdictMap { map, from }
    }

    /// Ends the rule for packets that leave over the loopback link.
    pub fn not_to_loopback(scratch: Register) -> [Expression; 2] {
        let key = MetaKey::OutgoingName;
        [
            Expression::Meta { key, to: scratch },
            Expression::not_equal(scratch, b"lo\0".as_slice()),
        ]
    }

    pub fn transport_protocol(to: Register) -> Expression {
        Expression::Meta {
            key: MetaKey::TransportProtocol,
            to,
        }
    }

    pub fn source_address(to: Register) -> Expression {
        Expression::Payload {
            header: Header::Network,
            offset: 12,
            length: 4,
            to,
        }
    }

    pub fn destination_address(to: Register) -> Expression {
        Expression::Payload {
            header: Header::Network,
            offset: 16,
            length: 4,
            to,
        }
    }

    pub fn destination_port(to: Register) -> Expression {
        Expression::Payload {
            header: Header::Transport,
            offset: 2,
            length: 2,
            to,
        }
    }

    pub fn equal(from: Register, value: impl Into<Vec<u8>>) -> Expression {
        Expression::Compare {
            from,
            comparison: Comparison::Equal,
            value: value.into(),
        }
    }

    pub fn not_equal(from: Register, value: impl Into<Vec<u8>>) -> Expression {
        Expression::Compare {
            from,
            comparison: Comparison::NotEqual,
            value: value.into(),
        }
    }

    pub fn address(address: Ipv4Addr, to: Register) -> Expression {
        Expression::Value {
            value: address.octets().to_vec(),
            to,
        }
    }

    /// Compares the address in the register with a subnet (the register is overwritten).
    pub fn within(from: Register, subnet: Subnet, comparison: Comparison) -> [Expression; 2] {
        [
            Expression::Bitwise {
                from,
                to: from,
                mask: subnet.mask().octets().to_vec(),
                xor: vec![0; 4],
            },
            Expression::Compare {
                from,
                comparison,
                value: subnet.address().octets().to_vec(),
            },
        ]
    }

    /// Compares an interface name with a prefix.
    pub fn name_begins(key: MetaKey, prefix: &str, scratch: Register) -> [Expression; 2] {
        [
            Expression::Meta { key, to: scratch },
            Expression::equal(scratch, prefix.as_bytes()),
        ]
    }
}

/// Numbers of the NAT expression.
pub mod nat {
    pub const SOURCE: u32 = 0;
    pub const DESTINATION: u32 = 1;
}

/// Numbers of the reject expression.
pub mod reject {
    pub const ICMP: u32 = 0;
    pub const RESET: u32 = 1;
    pub const PORT_UNREACHABLE: u8 = 3;
}

const NFTA_DATA_VALUE: u16 = 1;
const NFTA_DATA_VERDICT: u16 = 2;

/// Writes a verdict as it stands in rules and in elements of verdict maps.
pub(super) fn write_verdict(writer: &mut Writer, kind: u16, verdict: &RuleVerdict) {
    let (code, chain): (i32, Option<&str>) = match verdict {
        RuleVerdict::Drop => (0, None),
        RuleVerdict::Accept => (1, None),
        RuleVerdict::Jump(chain) => (-3, Some(chain)),
        RuleVerdict::Goto(chain) => (-4, Some(chain)),
        RuleVerdict::Return => (-5, None),
    };
    writer.nested(kind, |data| {
        data.nested(NFTA_DATA_VERDICT, |verdict| {
            verdict.network_number(1, code as u32);
            if let Some(chain) = chain {
                verdict.text(2, chain);
            }
        });
    });
}

pub(super) fn write_value(writer: &mut Writer, kind: u16, value: &[u8]) {
    writer.nested(kind, |data| data.attribute(NFTA_DATA_VALUE, value));
}

impl Expression {
    fn name(&self) -> &'static str {
        match self {
            Expression::Meta { .. } => "meta",
            Expression::Payload { .. } => "payload",
            Expression::Ct { .. } => "ct",
            Expression::FibType { .. } => "fib",
            Expression::Random { .. } => "numgen",
            Expression::Bitwise { .. } => "bitwise",
            Expression::Compare { .. } => "cmp",
            Expression::InSet { .. } | Expression::Map { .. } | Expression::VerdictMap { .. } => {
                "lookup"
            }
            Expression::Remember { .. } => "dynset",
            Expression::Value { .. } | Expression::Decide(_) => "immediate",
            Expression::DestinationNat { .. } | Expression::SourceNat { .. } => "nat",
            Expression::Masquerade => "masq",
            Expression::Redirect { .. } => "redir",
            Expression::RejectPort | Expression::RejectReset => "reject",
            Expression::Counter => "counter",
        }
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        const NFTA_LIST_ELEM: u16 = 1;
        writer.nested(NFTA_LIST_ELEM, |element| {
            element.text(1, self.name());
            element.nested(2, |data| self.write_data(data));
        });
    }

    fn write_data(&self, data: &mut Writer) {
        match self {
            Expression::Meta { key, to } => {
                data.network_number(1, to.number());
                data.network_number(2, *key as u32);
            }
            Expression::Payload {
                header,
                offset,
                length,
                to,
            } => {
                data.network_number(1, to.number());
                data.network_number(
                    2,
                    match header {
                        Header::Network => 1,
                        Header::Transport => 2,
                    },
                );
                data.network_number(3, *offset);
                data.network_number(4, *length);
            }
            Expression::Ct { key, direction, to } => {
                data.network_number(1, to.number());
                data.network_number(2, *key as u32);
                if let Some(direction) = direction {
                    data.attribute(3, &[*direction as u8]);
                }
            }
            Expression::FibType { of, to } => {
                const NFT_FIB_RESULT_ADDRTYPE: u32 = 3;
                data.network_number(1, to.number());
                data.network_number(2, NFT_FIB_RESULT_ADDRTYPE);
                data.network_number(3, *of as u32);
            }
            Expression::Random { modulus, to } => {
                const NFT_NG_RANDOM: u32 = 1;
                data.network_number(1, to.number());
                data.network_number(2, *modulus);
                data.network_number(3, NFT_NG_RANDOM);
                data.network_number(4, 0);
            }
            Expression::Bitwise {
                from,
                to,
                mask,
                xor,
            } => {
                data.network_number(1, from.number());
                data.network_number(2, to.number());
                data.network_number(3, mask.len() as u32);
                write_value(data, 4, mask);
                write_value(data, 5, xor);
            }
            Expression::Compare {
                from,
                comparison,
                value,
            } => {
                data.network_number(1, from.number());
                data.network_number(2, *comparison as u32);
                write_value(data, 3, value);
            }
            Expression::InSet {
                set,
                from,
                inverted,
            } => {
                data.text(1, set);
                data.network_number(2, from.number());
                if *inverted {
                    data.network_number(5, 1);
                }
            }
            Expression::Map { map, from, to } => {
                data.text(1, map);
                data.network_number(2, from.number());
                data.network_number(3, to.number());
            }
            Expression::VerdictMap { map, from } => {
                data.text(1, map);
                data.network_number(2, from.number());
                data.network_number(3, VERDICT_REGISTER);
            }
            Expression::Remember {
                set,
                key,
                timeout_seconds,
            } => {
                const NFT_DYNSET_OP_UPDATE: u32 = 1;
                data.text(1, set);
                data.network_number(3, NFT_DYNSET_OP_UPDATE);
                data.network_number(4, key.number());
                data.attribute(6, &(timeout_seconds * 1000).to_be_bytes());
            }
            Expression::Value { value, to } => {
                data.network_number(1, to.number());
                write_value(data, 2, value);
            }
            Expression::Decide(verdict) => {
                data.network_number(1, VERDICT_REGISTER);
                write_verdict(data, 2, verdict);
            }
            Expression::DestinationNat { address, port } => {
                data.network_number(1, nat::DESTINATION);
                data.network_number(2, libc::NFPROTO_IPV4 as u32);
                data.network_number(3, address.number());
                if let Some(port) = port {
                    data.network_number(5, port.number());
                }
            }
            Expression::SourceNat { address } => {
                data.network_number(1, nat::SOURCE);
                data.network_number(2, libc::NFPROTO_IPV4 as u32);
                data.network_number(3, address.number());
            }
            Expression::Masquerade => {}
            Expression::Redirect { port } => {
                if let Some(port) = port {
                    data.network_number(1, port.number());
                }
            }
            Expression::RejectPort => {
                data.network_number(1, reject::ICMP);
                data.attribute(2, &[reject::PORT_UNREACHABLE]);
            }
            Expression::RejectReset => data.network_number(1, reject::RESET),
            Expression::Counter => {}
        }
    }
}
