# `make` lists the targets. Everything runs in every module of the repository:
# the root, and the nested ones that keep test-only dependencies out of it.

# Kept out of go.mod: a linter is no dependency of ours.
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

# How long `make fuzz` spends on each target.
FUZZTIME ?= 20s

# The brokers that `make test` needs; each is a file in scripts/brokers.d. With
# none, tests that need one skip: make test BROKERS=
BROKERS ?= rabbitmq kafka sqs postgres

# Flags for go test beyond ours: make test TESTFLAGS='-run TestClose -v'
TESTFLAGS ?=

# The race detector needs cgo on most systems, and so a C compiler.
RACE ?= $(if $(filter 1,$(shell go env CGO_ENABLED)),-race)

MODULES := $(shell find . -name '.?*' -prune -o -name testdata -prune -o -name go.mod -print | sort | xargs -n 1 dirname)
SCRIPTS := .ci/run $(shell find scripts -type f)
GOFILES = $(shell find . -name '.?*' -prune -o -name testdata -prune -o -name '*.go' -print)

# each runs a command in every module, also after a failure, and fails if one did.
define each
@failed=; for module in $(MODULES); do \
	echo "--- $$module: $(strip $(1))"; \
	(cd "$$module" && $(1)) || failed="$$failed $$module"; \
done; \
if [ -n "$$failed" ]; then echo "failed in:$$failed" >&2; exit 1; fi
endef

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: test
test: ## run every test, shuffled and under the race detector, with the brokers
	@$(if $(RACE),:,echo "NOTE: no C compiler found; running without the race detector" >&2)
	@scripts/brokers run $(BROKERS) -- $(MAKE) --no-print-directory test-modules

# What test runs once the brokers are up.
.PHONY: test-modules
test-modules:
	$(call each,go test $(RACE) -shuffle=on $(TESTFLAGS) ./...)

.PHONY: brokers
brokers: ## start the brokers and leave them running; scripts/brokers does more
	@scripts/brokers up $(BROKERS)

.PHONY: check-brokers
check-brokers: ## test scripts/brokers itself: starts, crashes, clones
	@scripts/check-brokers $(BROKERS)

.PHONY: bench
bench: ## measure and print a table; without RabbitMQ: make bench BROKERS=
	@scripts/brokers run $(BROKERS) -- go run ./internal/bench

# What `make chaos` hits, for how long, and how; docs/reliability.md explains.
BROKER ?= memory
DURATION ?= 1m
SEED ?= 0
MESSAGES ?= 0

.PHONY: chaos
chaos: ## kill, cut and restart everything around consumers of BROKER, then look for every message
	@go build -buildvcs=false -o bin/storm ./internal/storm/cmd
	@bin/storm -broker $(BROKER) -duration $(DURATION) -seed $(SEED) -messages $(MESSAGES)

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME (20s)
	@FUZZTIME=$(FUZZTIME) scripts/fuzz $(MODULES)

.PHONY: fmt
fmt: ## format the Go files
	@gofmt -s -w $(GOFILES)

.PHONY: lint
lint: lint-fmt lint-tidy lint-vet lint-staticcheck lint-arch lint-shell ## run all linters

.PHONY: lint-fmt
lint-fmt: ## is every file formatted?
	@echo "--- gofmt -s"
	@unformatted=$$(gofmt -s -l $(GOFILES)) || exit 1; \
	if [ -n "$$unformatted" ]; then echo "run make fmt:" >&2; echo "$$unformatted" >&2; exit 1; fi

.PHONY: lint-tidy
lint-tidy: ## is every go.mod tidy?
	$(call each,go mod tidy -diff)

.PHONY: lint-vet
lint-vet: ## go vet
	$(call each,go vet ./...)

.PHONY: lint-staticcheck
lint-staticcheck: ## staticcheck
	$(call each,go run $(STATICCHECK) ./...)

.PHONY: lint-arch
lint-arch: ## allowed imports; no unfinished marks or paths of a machine in any file
	@echo "--- internal/archtest"
	@go test -count=1 ./internal/archtest

# ShellCheck is a package of the system, not of Go: where it is missing, bash
# still reads the scripts for syntax.
.PHONY: lint-shell
lint-shell: ## shellcheck, if there is one
	@if command -v shellcheck >/dev/null; then \
		echo "--- shellcheck"; shellcheck -x $(SCRIPTS); \
	else \
		echo "--- bash -n (no shellcheck found)"; for script in $(SCRIPTS); do bash -n "$$script" || exit 1; done; \
	fi
