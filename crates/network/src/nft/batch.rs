//! Atomic batches: everything between begin and end takes effect together or not at all.

use super::Error;
use super::object::{Chain, Element, Family, Rule, Set};
use crate::netlink::Connection;
use crate::netlink::message::Writer;

const NFNL_MSG_BATCH_BEGIN: u16 = 0x10;
const NFNL_MSG_BATCH_END: u16 = 0x11;
const NFNL_SUBSYS_NFTABLES: u16 = 10;

const NEWTABLE: u16 = 0;
const DELTABLE: u16 = 2;
const NEWCHAIN: u16 = 3;
const DELCHAIN: u16 = 5;
const NEWRULE: u16 = 6;
const DELRULE: u16 = 8;
const NEWSET: u16 = 9;
const DELSET: u16 = 11;
const NEWSETELEM: u16 = 12;
const DELSETELEM: u16 = 14;

const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_CREATE: u16 = 0x400;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_APPEND: u16 = 0x800;

/// An attribute's length is 16 bits; elements are spread over messages that stay below it.
const LARGEST_ELEMENT_LIST: usize = 48 << 10;
/// The kernel asks for a retry when it had to load a module or another batch came between.
const COMMIT_ATTEMPTS: usize = 10;

/// The operations of one atomic change to one table, in order.
pub struct Batch {
    family: Family,
    table: String,
    operations: Vec<Operation>,
}

struct Operation {
    kind: u16,
    flags: u16,
    what: String,
    body: Vec<u8>,
}

/// Several batches (of several tables) committed as one.
#[derive(Default)]
pub struct Transaction {
    batches: Vec<Batch>,
}

impl Batch {
    pub fn new(family: Family, table: impl Into<String>) -> Batch {
        Batch {
            family,
            table: table.into(),
            operations: Vec::new(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// The number of netlink messages it will take.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// About how many bytes it will take.
    pub fn bytes(&self) -> usize {
        self.operations
            .iter()
            .map(|operation| operation.body.len() + 20)
            .sum()
    }

    fn push(&mut self, kind: u16, flags: u16, what: String, body: impl FnOnce(&mut Writer)) {
        let mut writer = Writer::new();
        body(&mut writer);
        let body = writer.bytes().to_vec();
        self.operations.push(Operation {
            kind,
            flags,
            what,
            body,
        });
    }

    /// Adds the table; one that exists is left as it is.
    pub fn add_table(&mut self) {
        let table = self.table.clone();
        self.push(
            NEWTABLE,
            NLM_F_CREATE,
            format!("add table {table}"),
            |writer| {
                writer.text(1, &table);
                writer.network_number(2, 0);
            },
        );
    }

    /// Deletes the table with all it holds; refused when it does not exist.
    pub fn delete_table(&mut self) {
        let table = self.table.clone();
        self.push(DELTABLE, 0, format!("delete table {table}"), |writer| {
            writer.text(1, &table)
        });
    }

    /// Adds a chain; one that exists is left as it is.
    pub fn add_chain(&mut self, chain: &Chain) {
        let table = self.table.clone();
        self.push(
            NEWCHAIN,
            NLM_F_CREATE,
            format!("add chain {}", chain.name),
            |writer| {
                chain.write(writer, &table);
            },
        );
    }

    /// Deletes an empty chain that nothing refers to.
    pub fn delete_chain(&mut self, name: &str) {
        let table = self.table.clone();
        self.push(DELCHAIN, 0, format!("delete chain {name}"), |writer| {
            writer.text(1, &table);
            writer.text(3, name);
        });
    }

    /// Deletes all rules of a chain.
    pub fn flush_chain(&mut self, name: &str) {
        let table = self.table.clone();
        self.push(DELRULE, 0, format!("flush chain {name}"), |writer| {
            writer.text(1, &table);
            writer.text(2, name);
        });
    }

    /// Adds a set or map; one that exists with the same type is left as it is.
    pub fn add_set(&mut self, set: &Set) {
        let table = self.table.clone();
        let id = self.operations.len() as u32 + 1;
        self.push(
            NEWSET,
            NLM_F_CREATE,
            format!("add set {}", set.name),
            |writer| {
                set.write(writer, &table, id);
            },
        );
    }

    pub fn delete_set(&mut self, name: &str) {
        let table = self.table.clone();
        self.push(DELSET, 0, format!("delete set {name}"), |writer| {
            writer.text(1, &table);
            writer.text(2, name);
        });
    }

    /// Adds a rule at the end of its chain.
    pub fn append_rule(&mut self, rule: &Rule) {
        self.rule(rule, NLM_F_CREATE | NLM_F_APPEND);
    }

    /// Adds a rule at the head of its chain.
    pub fn insert_rule(&mut self, rule: &Rule) {
        self.rule(rule, NLM_F_CREATE);
    }

    fn rule(&mut self, rule: &Rule, flags: u16) {
        let table = self.table.clone();
        self.push(
            NEWRULE,
            flags,
            format!("add a rule to chain {}", rule.chain),
            |writer| {
                rule.write(writer, &table);
            },
        );
    }

    pub fn delete_rule(&mut self, chain: &str, handle: u64) {
        let table = self.table.clone();
        self.push(
            DELRULE,
            0,
            format!("delete rule {handle} of chain {chain}"),
            |writer| {
                writer.text(1, &table);
                writer.text(2, chain);
                writer.attribute(3, &handle.to_be_bytes());
            },
        );
    }

    /// Adds elements. An element that exists with the same value is left; with another it is refused.
    pub fn add_elements(&mut self, set: &str, elements: &[Element]) {
        self.elements(NEWSETELEM, NLM_F_CREATE, "add elements to", set, elements);
    }

    /// Adds elements, refused when one of the keys is taken.
    pub fn add_new_elements(&mut self, set: &str, elements: &[Element]) {
        self.elements(
            NEWSETELEM,
            NLM_F_CREATE | NLM_F_EXCL,
            "add elements to",
            set,
            elements,
        );
    }

    /// Deletes elements; refused when one of them does not exist.
    pub fn delete_elements(&mut self, set: &str, elements: &[Element]) {
        self.elements(DELSETELEM, 0, "delete elements of", set, elements);
    }

    /// Deletes every element of the set.
    pub fn flush_set(&mut self, set: &str) {
        let table = self.table.clone();
        self.push(DELSETELEM, 0, format!("flush set {set}"), |writer| {
            writer.text(1, &table);
            writer.text(2, set);
        });
    }

    fn elements(&mut self, kind: u16, flags: u16, verb: &str, set: &str, elements: &[Element]) {
        let table = self.table.clone();
        let mut rest = elements;
        while !rest.is_empty() {
            let mut weight = 0;
            let count = rest
                .iter()
                .take_while(|element| {
                    weight += element.weight();
                    weight < LARGEST_ELEMENT_LIST
                })
                .count()
                .max(1);
            let (part, after) = rest.split_at(count);
            self.push(kind, flags, format!("{verb} set {set}"), |writer| {
                writer.text(1, &table);
                writer.text(2, set);
                writer.nested(3, |list| {
                    for element in part {
                        element.write(list);
                    }
                });
            });
            rest = after;
        }
    }

    /// Carries the batch out.
    pub fn commit(self, connection: &mut Connection) -> Result<(), Error> {
        Transaction {
            batches: vec![self],
        }
        .commit(connection)
    }
}

impl Transaction {
    pub fn push(&mut self, batch: Batch) {
        self.batches.push(batch);
    }

    /// Carries all batches out as one. When the kernel asks to try again (a module had to be loaded,
    /// or the generation changed under it) the same bytes are sent again.
    pub fn commit(self, connection: &mut Connection) -> Result<(), Error> {
        if self.batches.iter().all(Batch::is_empty) {
            return Ok(());
        }
        let mut attempt = 0;
        loop {
            attempt += 1;
            match self.attempt(connection) {
                Err(Error::Refused {
                    errno: libc::ERESTART | libc::EINTR | libc::EAGAIN,
                    ..
                }) if attempt < COMMIT_ATTEMPTS => {}
                outcome => return outcome,
            }
        }
    }

    fn attempt(&self, connection: &mut Connection) -> Result<(), Error> {
        let mut writer = Writer::new();
        let first = connection.next_sequence();
        writer.message(NFNL_MSG_BATCH_BEGIN, NLM_F_REQUEST, first, |body| {
            body.raw(&header(0, NFNL_SUBSYS_NFTABLES));
        });
        let operations: Vec<(&Batch, &Operation)> = self
            .batches
            .iter()
            .flat_map(|batch| {
                batch
                    .operations
                    .iter()
                    .map(move |operation| (batch, operation))
            })
            .collect();
        for (index, (batch, operation)) in operations.iter().enumerate() {
            // An acknowledgement of the last operation means that the whole batch was committed.
            let acknowledge = if index + 1 == operations.len() {
                NLM_F_ACK
            } else {
                0
            };
            let flags = NLM_F_REQUEST | operation.flags | acknowledge;
            let kind = NFNL_SUBSYS_NFTABLES << 8 | operation.kind;
            let sequence = connection.next_sequence();
            writer.message(kind, flags, sequence, |body| {
                body.raw(&header(batch.family.number(), 0));
                body.raw(&operation.body);
            });
        }
        let last = connection.next_sequence();
        writer.message(NFNL_MSG_BATCH_END, NLM_F_REQUEST, last, |body| {
            body.raw(&header(0, NFNL_SUBSYS_NFTABLES));
        });
        let replies = connection.batch(writer.bytes())?;
        if let Some(refusal) = replies.iter().find(|reply| reply.errno != 0) {
            let index = refusal.sequence.wrapping_sub(first).wrapping_sub(1) as usize;
            let what = operations.get(index).map_or_else(
                || "commit".to_owned(),
                |(_, operation)| operation.what.clone(),
            );
            return Err(Error::Refused {
                what,
                errno: refusal.errno,
            });
        }
        if replies.is_empty() {
            Err(Error::NoAnswer)
        } else {
            Ok(())
        }
    }
}

/// The header of every netfilter message: family, version 0, resource in network order.
pub(super) fn header(family: u8, resource: u16) -> [u8; 4] {
    let [high, low] = resource.to_be_bytes();
    [family, 0, high, low]
}
