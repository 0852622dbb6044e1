# schedlab: the usual chores. `make` or `make help` lists them.
CARGO ?= cargo
SHELL := /bin/bash

.DEFAULT_GOAL := help
.PHONY: help build test lint ci oracle stress bench doc clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build:  ## Build the program: target/release/schedlab
	$(CARGO) build --release --package schedlab-cli

test:  ## Every test: models against oracles, scenarios, recordings, bad input, tidiness
	$(CARGO) test --workspace --no-fail-fast

lint:  ## Formatting and clippy, warnings are errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

ci:  ## What must hold before a change lands: lint, tidy, licences, tests
	$(CARGO) xtask ci

bench:  ## Speed of the engine (needs a quiet machine; not part of the tests)
	$(CARGO) bench --workspace

doc:  ## The API documentation: target/doc
	$(CARGO) doc --workspace --no-deps

clean:  ## Remove everything that was built
	$(CARGO) clean
