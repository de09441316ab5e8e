//! The parser: trees, numbers of nodes and syntax errors.
