//! The fuzz driver: made-up and damaged input for everything that reads what strangers send. For
//! each target it asserts that nothing panics, that no stack overflows (on a thread with the stack
//! of the server's own threads) and that what is allocated stays within a bound per byte of input.
//!
//! A few seconds in `make test`. `FUZZ_INPUTS` says how many inputs each target gets (`make soak`
//! gives a million), `FUZZ_SEED` which ones. A failure prints both and the input's number:
//! `FUZZ_SEED=2026 FUZZ_FIRST=17 FUZZ_INPUTS=1 cargo test -p testkit --test fuzz yaml` repeats one.
//! After an abort, `FUZZ_TRACE=1` names each input before it is tried.

mod certificates;
mod documents;
mod driver;
mod input;
mod patches;
mod random;
mod readers;
mod requests;
mod texts;
mod wire;
