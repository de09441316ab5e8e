//! What a process does about signals, for programs that must not say so themselves because it
//! takes an unsafe call.

use nix::sys::signal::{SigHandler, Signal, signal};

/// Ends the process quietly when it writes to a pipe that has no reader any more, as programs in a
/// pipeline do. Rust programs otherwise get an error from every write.
pub fn end_on_closed_pipe() {
    // SAFETY: the default action replaces no handler that anybody relies on, and runs no code.
    let _ = unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) };
}
