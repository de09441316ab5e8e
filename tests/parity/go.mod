module coracle.dev/tests/parity

go 1.26.0
