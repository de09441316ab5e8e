//! The whole scheduler over the API, under simulated time, against a small in-memory API.
//!
//! What needs a real API server (admission, authorization, the store) is tested with `testkit`.

mod fake_api;
mod placing;
