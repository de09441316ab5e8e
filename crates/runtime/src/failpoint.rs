//! Points at which a test has this process die, as a power cut or `kill -9` would: between any two
//! effects of a call. Unarmed, as always outside tests, a point is one load of a zero.

use std::sync::atomic::{AtomicU64, Ordering};

/// The number of the point at which the process dies; zero means none.
static DIE_AT: AtomicU64 = AtomicU64::new(0);
static REACHED: AtomicU64 = AtomicU64::new(0);

/// From now on the process dies at the `number`th point it reaches.
pub fn die_at(number: u64) {
    REACHED.store(0, Ordering::Relaxed);
    DIE_AT.store(number, Ordering::Relaxed);
}

/// Something is about to be done, or has just been done.
#[inline]
pub(crate) fn reach(point: &'static str) {
    if DIE_AT.load(Ordering::Relaxed) != 0 {
        count(point);
    }
}

#[cold]
fn count(point: &'static str) {
    let reached = REACHED.fetch_add(1, Ordering::Relaxed) + 1;
    if reached == DIE_AT.load(Ordering::Relaxed) {
        eprintln!("dies at point {reached}: {point}");
        let _ = nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::Signal::SIGKILL);
    }
}
