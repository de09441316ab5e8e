//! Tests with answers of upstream.
