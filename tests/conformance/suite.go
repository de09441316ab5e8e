// Package conformance names what is built from Kubernetes' own module: this file the end-to-end
// suite, the `tool` lines of go.mod the commands. Nothing here is compiled into Coracle.
package conformance

import _ "k8s.io/kubernetes/test/e2e"
