//! The checker: types, messages and their places.
