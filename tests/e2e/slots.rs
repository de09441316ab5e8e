//! Limits how many end-to-end tests run at once, however many threads the test harness has: clusters
//! share the machine's cores, and a start that gets no time looks like a start that failed.
//!
//! A test waits for a slot before it starts its first process and keeps it until its thread ends (the
//! harness runs every test on a thread of its own). A test with two clusters has one slot, so that
//! tests cannot wait for each other.

use std::sync::{Condvar, Mutex, PoisonError};

/// The number of tests that may use the machine at once.
static SLOTS: Slots = Slots::new(2);

/// Waits until the test of this thread may use the machine. Further calls on the thread return at
/// once. Helper threads of a test must not call it.
pub fn wait_for_slot() {
    thread_local! {
        static SLOT: Slot = SLOTS.acquire();
    }
    SLOT.with(|_| ());
}

/// A counting semaphore.
struct Slots {
    free: Mutex<usize>,
    released: Condvar,
}

/// Released when it is dropped; that of a test with its thread, also after a panic.
struct Slot(&'static Slots);

impl Slots {
    const fn new(count: usize) -> Slots {
        Slots {
            free: Mutex::new(count),
            released: Condvar::new(),
        }
    }

    fn acquire(&'static self) -> Slot {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = self
            .released
            .wait_while(free, |free| *free == 0)
            .unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        Slot(self)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut free = self.0.free.lock().unwrap_or_else(PoisonError::into_inner);
        *free += 1;
        self.0.released.notify_one();
    }
}

#[test]
fn no_more_tests_than_slots_run_at_once() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static OWN: Slots = Slots::new(2);
    let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let slot = OWN.acquire();
                let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                most.fetch_max(now, Ordering::SeqCst);
                std::thread::yield_now();
                running.fetch_sub(1, Ordering::SeqCst);
                drop(slot);
            });
        }
    });
    assert!((1..=2).contains(&most.into_inner()));
    assert_eq!(*OWN.free.lock().expect("not poisoned"), 2);
}
