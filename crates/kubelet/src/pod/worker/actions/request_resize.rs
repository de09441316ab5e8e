//! Asks admission for the resources that the pod wants, if they are not those that it was granted.

use crate::pod::{resize, worker::Worker};

pub fn begin_if_due(worker: &mut Worker) {
    let admission = &worker.services.admission;
    if worker.is_ending() || !worker.forms.wants_resize() {
        if worker.resizing.withdraw() {
            admission.withdraw(worker.forms.granted());
        }
        return;
    }
    let (now, events) = (worker.now(), &worker.services.telemetry.events);
    let desired = worker.forms.desired().clone();
    let generation = desired.metadata.generation;
    if let Some(until) = worker.resizing.waits_until(generation, now) {
        worker.wake.no_later_than(until);
        return;
    }
    match admission.resize(&desired) {
        Ok(()) => {
            worker.forms.grant();
            worker.resizing.granted(generation);
            // Volumes may show what the containers now have.
            worker.volumes.want_refresh();
            let message = resize::event_message("Pod resize started", &desired, generation, "");
            events.normal(&desired, "ResizeStarted", message);
        }
        Err(rejection) => {
            let text = rejection.message.clone();
            let (until, was_known) = worker.resizing.deferred(generation, text, now);
            if !was_known {
                let message = resize::event_message(
                    "Pod resize Deferred",
                    &desired,
                    generation,
                    &rejection.message,
                );
                events.warning(worker.forms.granted(), "ResizeDeferred", message);
            }
            worker.wake.no_later_than(until);
            let (admission, mailbox) = (admission.clone(), worker.mailbox.clone());
            worker.watches.spawn(async move {
                admission.released().await;
                mailbox.room();
            });
        }
    }
}
