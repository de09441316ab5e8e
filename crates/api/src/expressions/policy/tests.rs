//! Tests of policies without a server.
