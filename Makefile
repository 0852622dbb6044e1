# schedlab: the usual chores. `make` or `make help` lists them.
CARGO ?= cargo
SHELL := /bin/bash
# Cargo's own variable moves what it builds.
TARGET := $(or $(CARGO_TARGET_DIR),target)

.DEFAULT_GOAL := help
.PHONY: help demo build dist test test-all test-programs cargo-test wheel wheel-test python-test python-test-always lint ci guests guests-short oracle stress bench doc clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

RECORDED := recordings/redis-other

# Without the commands that touch the machine, which are half of what is to be compiled.
demo:  ## No root: a recording of Redis beside a batch job; two predictions, and what really happened
	@.ci/packages build
	$(CARGO) build --release --package schedlab-cli --no-default-features
	$(TARGET)/release/schedlab compare --brief $(RECORDED)-other-closed8.slt \
	    --variant 'batch idle: sysbench policy=idle' \
	    --variant 'redis fifo: redis-server policy=fifo:1' \
	    --check 'batch idle=$(RECORDED)-idle-closed8.slt' \
	    --check 'redis fifo=recordings/redis-fifo-other-closed8.slt'

build:  ## Build all of the program: target/release/schedlab
	$(CARGO) build --release --package schedlab-cli

dist:  ## Static program, .deb, archive, SBOM and checksums below target/dist (cargo install --locked cargo-deb cargo-cyclonedx)
	$(CARGO) xtask dist

test:  ## What a push is judged by: lint, tests, the Python package and three kernels where the change can reach them
	@.ci/test

test-all:  ## The same, whatever changed, with all cases of the property tests
	@.ci/test --all

NEXTEST := $(CARGO) nextest
# nextest is taken where it is there (`make test` brings it). Examples are files of a crate, compiled with its tests: for examples in
# comments cargo would compile every dependency once more. One test more than there are CPUs: those of group `live`, one at a time, mostly
# wait.
cargo-test:  ## Every test but those of the Python package and the guests
	@if $(NEXTEST) --version >/dev/null 2>&1; then \
		$(NEXTEST) run --workspace --test-threads $$(( $$(nproc) + 1 )); else $(CARGO) test --workspace --all-targets --no-fail-fast; fi

# The same selection of crates as `cargo-test` has: built alone, a crate gets other features, and most would be compiled again.
test-programs:  ## Compile the tests and the programs that they run
	$(CARGO) test --workspace --no-run --quiet

# In the same turn as all else, where the libraries are there: another set of features would check half of all crates again.
SCHED_EXT = $(shell pkg-config --exists libelf zlib 2>/dev/null && echo --features schedlab-cli/sched-ext)
lint:  ## Formatting, clippy (warnings are errors), licences and known holes of dependencies
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets $(SCHED_EXT) -- -D warnings
	$(CARGO) clippy --package schedlab-cli --no-default-features -- -D warnings
	@[ -n '$(SCHED_EXT)' ] || \
		echo 'The sched_ext driver is not looked at: apt-get install libelf-dev zlib1g-dev pkg-config' >&2
	@if $(CARGO) deny --version >/dev/null 2>&1; then $(CARGO) xtask deny; else \
		echo 'Licences and advisories are not looked at by cargo-deny: cargo install cargo-deny (licences are by xtask tidy, too)' >&2; fi

ci:  ## What must hold before a change lands: lint, tidy, licences, tests
	$(CARGO) xtask ci

guests:  ## The program on six other kernels, in QEMU (fetches some 500 MB; an hour)
	$(CARGO) xtask guest

# What `make test-programs` built.
TEST_PROGRAM := $(abspath $(TARGET))/debug/schedlab
TEST_XTASK := CARGO_MANIFEST_DIR=$(CURDIR)/xtask $(abspath $(TARGET))/debug/xtask
# --always: these parts run whatever changed.
ALWAYS :=

guests-short: test-programs  ## The same on three kernels, some minutes; left out when no file that counts for it has changed
	$(TEST_XTASK) reach guests-short $(ALWAYS) -- $(abspath $(TARGET))/debug/xtask guest --short --program $(TEST_PROGRAM)

# Versions of all that is installed are in python/requirements-test.lock.
# What lies in this folder maturin puts into the wheel: the command beside the module.
WHEEL_COMMAND := python/schedlab._native.data/scripts
wheel: build  ## The Python package, with the command: target/wheels
	mkdir -p $(WHEEL_COMMAND) && cp $(TARGET)/release/schedlab $(WHEEL_COMMAND)/
	environment=$$(.ci/python python/requirements-test.lock) && cd python && \
		rm -f ../target/wheels/schedlab-*.whl && "$$environment/bin/maturin" build --release --quiet --out ../target/wheels

wheel-test: wheel  ## Install the wheel into a folder of its own, import it, and compare a scenario
	environment=$$(.ci/python python/requirements-test.lock) && rm -rf target/wheel-test && \
		"$$environment/bin/pip" install --quiet --no-deps --target target/wheel-test target/wheels/schedlab-*.whl && \
		cd target/wheel-test && PYTHONPATH=. "$$environment/bin/python" -c \
		"import schedlab as sl; assert sl.__file__.startswith('$(abspath target/wheel-test)'); print(sl.compare('two-hogs'))" && \
		env -u SCHEDLAB PYTHONPATH=. "$$environment/bin/python" -m schedlab --version

python-test: test-programs  ## Tests of the Python package; left out when no file that counts for it has changed
	@if python3 -c 'import ensurepip' 2>/dev/null; then \
		$(TEST_XTASK) reach python $(ALWAYS) -- env -u CARGO_MANIFEST_DIR $(MAKE) python-test-always; else \
		echo 'The tests of the Python package are skipped: python3 or its venv is missing (apt-get install python3-venv)' >&2; fi

# The package as a folder, with the module that `make test-programs` compiled beside the tests.
PYTHON_FOLDER := $(abspath $(TARGET))/python
python-test-always: test-programs
	rm -rf $(PYTHON_FOLDER) && mkdir -p $(PYTHON_FOLDER) && cp -r python/schedlab $(PYTHON_FOLDER)/
	cp $(abspath $(TARGET))/debug/examples/libschedlab_native.so $(PYTHON_FOLDER)/schedlab/_native.abi3.so
	environment=$$(.ci/python python/requirements-test.lock) && \
		PYTHONPATH=$(PYTHON_FOLDER) SCHEDLAB=$(TEST_PROGRAM) "$$environment/bin/python" -m pytest -q python/tests

oracle:  ## The Linux presets against recorded kernels: runs (median of ten), replays, shares on four CPUs
	$(CARGO) xtask oracle oracles/linux/*.jsonl.zst --jitter 10 --share 0.005 --wait 15% --wait-floor 50us --pass 85%
	$(CARGO) xtask oracle oracles/linux/6.*.jsonl.zst --replay --pass 97%
	# Of 7.2, which asks at each HRTICK, 90 % are equal; the others are missed by 3.4 us in the median.
	$(CARGO) xtask oracle oracles/linux/7.*.jsonl.zst --replay --pass 85%
	$(CARGO) xtask guest-oracle --pass 90%

bench:  ## Speed of the engine (needs a quiet machine; not part of the tests)
	$(CARGO) bench --workspace

doc:  ## The API documentation: target/doc
	$(CARGO) doc --workspace --no-deps

clean:  ## Remove everything that was built
	$(CARGO) clean
