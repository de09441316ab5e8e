# The developer's front door. Every target sets up what it needs, through apt and cargo.
SHELL := /bin/bash
TARGET := $(or $(CARGO_TARGET_DIR),target)

.DEFAULT_GOAL := help
.PHONY: help build demo clean-demo test lint deny unit e2e e2e-containerd bench soak test-vm
.PHONY: conformance conformance-gate ecosystem parity cel-parity shared-etcd test-clients critest swap-kubelet swap-node swap-control-plane

help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

build: ## Build the release binary
	@scripts/build

demo: build ## Start a one-node cluster and watch a pod being born
	@scripts/demo

clean-demo: ## Remove every trace of the demo
	@scripts/demo clean

# Everything is built with one selection of packages (--workspace), so that features, and with them
# all dependencies, are the same for every target and are built once. Tests that cannot run on this
# machine say so in SKIPPED; the list of those that may is tests/skipped.txt.
SKIPPED := $(abspath $(TARGET))/skipped-tests.txt
INTEGRATION_TESTS := $(sort $(notdir $(basename $(wildcard crates/*/tests/*.rs))) \
  $(notdir $(patsubst %/main.rs,%,$(wildcard crates/*/tests/*/main.rs))))

test: ## Run all tests: lint, unit, simulation, integration, end to end with real containers
	@scripts/setup test
	$(MAKE) --no-print-directory lint
	@rm -f $(SKIPPED)
	CORACLE_SKIPPED_TESTS=$(SKIPPED) cargo test --workspace --locked
	@cargo xtask skipped $(SKIPPED)

lint: ## Check formatting, clippy and the house rules
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo xtask tidy

deny: ## Check licences, bans and sources of dependencies (installs cargo-deny)
	@scripts/setup deny
	cargo deny --locked check licenses bans sources

# The tests of the runtime drive an example, which is built only by the default selection of targets.
unit: ## Unit, simulation and integration tests
	cargo build --workspace --locked --examples
	cargo test --workspace --locked --lib --bins $(addprefix --test ,$(INTEGRATION_TESTS))

e2e: ## End-to-end tests with real containers
	cargo test --workspace --locked --test e2e

# Left out: what looks at our own runtime's processes, images and registry settings, and clusters
# that start a second node, which has a runtime of its own.
e2e-containerd: ## The end-to-end tests of pods, on Debian's containerd instead of our runtime
	@scripts/setup bench
	CORACLE_E2E_RUNTIME=containerd cargo test --workspace --locked --test e2e -- \
	  pods:: signatures:: services:: streams:: kubectl:: usage:: tracing:: \
	  --skip tracing::a_timeline_has_eleven_hops

bench: build ## Measure start, pod latency, API throughput, watch fan-out and memory
	@scripts/bench

soak: build ## Long campaigns: many simulation seeds, many pods
	@scripts/soak

test-vm: ## Run the runtime's end-to-end tests in virtual machines with cgroups v2, with and without systemd [FILTER=name DRIVER=systemd]
	@cargo xtask test-vm

conformance: build ## Run Kubernetes' conformance suite (needs Go) [FOCUS=regex] [SKIP=regex] [NODES=1|2]
	@scripts/conformance

conformance-gate: build ## Run the conformance tests that must stay green (needs Go)
	@scripts/conformance gate

ecosystem: build ## Run operators, webhooks and extension servers of others, unmodified (needs Go) [PARTS=name...]
	@cargo xtask ecosystem $(PARTS)

cel-parity: ## Compare the expression language with Kubernetes' own (needs Go)
	@scripts/cel-parity

parity: build ## Compare answers with the real kube-apiserver (needs Go)
	@scripts/parity

shared-etcd: build ## Let the real kube-apiserver and Coracle serve one etcd in turn (needs Go)
	@scripts/parity --shared-etcd

test-clients: build ## The same scenario with kubectl, kube-rs, client-go, Python and JavaScript
	@scripts/test-clients

critest: build ## Run Kubernetes' CRI suite on our runtime (needs Go) [RUNTIME=containerd] [FOCUS=regex]
	@scripts/critest

swap-kubelet: build ## Upstream's kubelet runs pods on our runtime (needs Go)
	@scripts/swap-kubelet

swap-node: build ## Our node on upstream's control plane, upstream's kubelet on ours (needs Go)
	@cargo xtask swap-node

swap-control-plane: build ## Scheduler, controllers and API server change places with upstream's (needs Go)
	@cargo xtask swap-control-plane
