//! Tests of schemas.
