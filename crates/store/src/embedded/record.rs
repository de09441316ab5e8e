//! The bytes inside a frame: a sequence of records, each one change to the engine's state.
//! Integers are little-endian; keys and values carry a 32-bit length.

use bytes::Bytes;

use crate::{KeyValue, LeaseId, Operation, Revision};

/// One change, as the log and the checkpoint keep it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The effective changes of one transaction.
    Transaction {
        revision: Revision,
        operations: Vec<Operation>,
    },
    /// History before this revision is forgotten.
    Compact {
        revision: Revision,
    },
    Grant {
        lease: LeaseId,
        seconds: u64,
    },
    EndLease {
        lease: LeaseId,
    },
    /// Opens a checkpoint: the items that follow are the state at `revision`.
    Base {
        revision: Revision,
        oldest: Revision,
    },
    /// A key of a checkpoint's base.
    Item(KeyValue),
    /// Closes a checkpoint, saying how many records came before. Format 1 does not say.
    End {
        records: Option<u64>,
    },
}

const TRANSACTION: u8 = 1;
const COMPACT: u8 = 2;
const GRANT: u8 = 3;
const END_LEASE: u8 = 4;
const BASE: u8 = 5;
const ITEM: u8 = 6;
const END: u8 = 7;

const PUT: u8 = 1;
const DELETE: u8 = 2;

impl Record {
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Record::Transaction {
                revision,
                operations,
            } => {
                out.push(TRANSACTION);
                put_u64(out, *revision);
                put_u32(out, operations.len() as u32);
                for operation in operations {
                    match operation {
                        Operation::Put { key, value, lease } => {
                            out.push(PUT);
                            put_bytes(out, key);
                            put_bytes(out, value);
                            put_u64(out, lease.unwrap_or(0));
                        }
                        Operation::Delete { key } => {
                            out.push(DELETE);
                            put_bytes(out, key);
                        }
                    }
                }
            }
            Record::Compact { revision } => {
                out.push(COMPACT);
                put_u64(out, *revision);
            }
            Record::Grant { lease, seconds } => {
                out.push(GRANT);
                put_u64(out, *lease);
                put_u64(out, *seconds);
            }
            Record::EndLease { lease } => {
                out.push(END_LEASE);
                put_u64(out, *lease);
            }
            Record::Base { revision, oldest } => {
                out.push(BASE);
                put_u64(out, *revision);
                put_u64(out, *oldest);
            }
            Record::Item(item) => {
                out.push(ITEM);
                put_bytes(out, &item.key);
                put_bytes(out, &item.value);
                put_u64(out, item.create_revision);
                put_u64(out, item.mod_revision);
                put_u64(out, item.version);
                put_u64(out, item.lease.unwrap_or(0));
            }
            Record::End { records } => {
                out.push(END);
                if let Some(records) = records {
                    put_u64(out, *records);
                }
            }
        }
    }

    /// Reads all records of a frame of that format; `None` when the bytes make no sense.
    pub fn decode_all(format: u32, frame: &[u8]) -> Option<Vec<Record>> {
        let mut reader = Reader {
            format,
            rest: frame,
        };
        let mut records = Vec::new();
        while !reader.rest.is_empty() {
            records.push(reader.record()?);
        }
        Some(records)
    }
}

fn put_u32(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u32(out, bytes.len() as u32);
    out.extend_from_slice(bytes);
}

struct Reader<'a> {
    format: u32,
    rest: &'a [u8],
}

impl Reader<'_> {
    fn record(&mut self) -> Option<Record> {
        Some(match self.u8()? {
            TRANSACTION => {
                let revision = self.u64()?;
                let count = self.u32()?;
                let mut operations = Vec::new();
                for _ in 0..count {
                    operations.push(match self.u8()? {
                        PUT => Operation::Put {
                            key: self.bytes()?,
                            value: self.bytes()?,
                            lease: self.lease()?,
                        },
                        DELETE => Operation::Delete { key: self.bytes()? },
                        _ => return None,
                    });
                }
                Record::Transaction {
                    revision,
                    operations,
                }
            }
            COMPACT => Record::Compact {
                revision: self.u64()?,
            },
            GRANT => Record::Grant {
                lease: self.u64()?,
                seconds: self.u64()?,
            },
            END_LEASE => Record::EndLease { lease: self.u64()? },
            BASE => Record::Base {
                revision: self.u64()?,
                oldest: self.u64()?,
            },
            ITEM => Record::Item(KeyValue {
                key: self.bytes()?,
                value: self.bytes()?,
                create_revision: self.u64()?,
                mod_revision: self.u64()?,
                version: self.u64()?,
                lease: self.lease()?,
            }),
            END => Record::End {
                records: match self.format {
                    1 => None,
                    _ => Some(self.u64()?),
                },
            },
            _ => return None,
        })
    }

    fn read_bytes(&mut self, length: usize) -> Option<&[u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        Some(self.read_bytes(1)?[0])
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.read_bytes(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.read_bytes(8)?.try_into().ok()?))
    }

    /// Copied, so that a value does not keep the whole file in memory.
    fn bytes(&mut self) -> Option<Bytes> {
        let length = self.u32()? as usize;
        Some(Bytes::copy_from_slice(self.read_bytes(length)?))
    }

    fn lease(&mut self) -> Option<Option<LeaseId>> {
        Some(match self.u64()? {
            0 => None,
            lease => Some(lease),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::FORMAT;
    use super::*;

    fn every_kind() -> Vec<Record> {
        vec![
            Record::Base {
                revision: 7,
                oldest: 8,
            },
            Record::Item(KeyValue {
                key: "key".into(),
                value: "value".into(),
                create_revision: 2,
                mod_revision: 6,
                version: 3,
                lease: Some(9),
            }),
            Record::Transaction {
                revision: 8,
                operations: vec![
                    Operation::Put {
                        key: "a".into(),
                        value: Bytes::new(),
                        lease: None,
                    },
                    Operation::Delete { key: "b".into() },
                ],
            },
            Record::Compact { revision: 8 },
            Record::Grant {
                lease: 9,
                seconds: 60,
            },
            Record::EndLease { lease: 9 },
            Record::End { records: Some(6) },
        ]
    }

    #[test]
    fn written_records_are_read_back() {
        let mut bytes = Vec::new();
        for record in every_kind() {
            record.encode(&mut bytes);
        }
        assert_eq!(Record::decode_all(FORMAT, &bytes), Some(every_kind()));
    }

    #[test]
    fn cut_bytes_are_refused_or_a_prefix() {
        let mut bytes = Vec::new();
        for record in every_kind() {
            record.encode(&mut bytes);
        }
        for length in 0..bytes.len() {
            if let Some(records) = Record::decode_all(FORMAT, &bytes[..length]) {
                assert_eq!(records, every_kind()[..records.len()]);
            }
        }
    }
}
