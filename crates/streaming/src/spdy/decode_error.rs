//! Reasons to refuse what a peer sends as SPDY.

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("a SPDY frame of version {0}")]
    Version(u16),
    #[error("a SPDY frame is too large")]
    TooLarge,
    #[error("a SPDY frame is too short")]
    TooShort,
    #[error("SPDY headers that cannot be unpacked")]
    Compression,
    #[error("SPDY headers that are malformed")]
    HeaderBlock,
}
