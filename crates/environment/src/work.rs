//! Counts objects that are looked at, so that tests can assert how much work an event causes
//! without measuring time.
//!
//! Every part that hands out objects (an informer's cache, the watch cache, the scheduler's table of
//! nodes) reports here how many it handed out. The count belongs to the thread: tests run
//! everything on one thread, and a server pays an addition.

use std::cell::Cell;

thread_local! {
    static VISITED: Cell<u64> = const { Cell::new(0) };
}

/// Reports that so many objects are being looked at.
pub fn visit(objects: usize) {
    VISITED.with(|visited| visited.set(visited.get().wrapping_add(objects as u64)));
}

/// How many objects this thread has looked at since it began.
pub fn visited() -> u64 {
    VISITED.with(Cell::get)
}
