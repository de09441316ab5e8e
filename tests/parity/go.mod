module coracle.dev/tests/parity

go 1.26.0

require (
	github.com/google/gnostic-models v0.7.1
	go.yaml.in/yaml/v3 v3.0.3
	google.golang.org/protobuf v1.35.1
)
