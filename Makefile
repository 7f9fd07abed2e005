# Everything a user or a developer does begins here: `make help` lists it.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup java demo test test-fast test-integration test-deep test-clients check format proto bench bench-quick sim sim-long clean

# Where it is set, every broker and command of a test would compile the whole tree again: a quarter of its start.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# The first Python on PATH that is new enough; `make PYTHON=/path/to/python setup` chooses another.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)
SEED ?= 1
# Of the benchmarks, all but those that run only by name; or these: make bench SUITE="kafka latency".
SUITE ?=
# One more than the two cores that the suite is made for: half of the tests wait for processes and leases most of the
# time. Those that must not run beside each other are grouped in tests/conftest.py, those that measure run alone.
WORKERS ?= 3
CLIENTS = tests/integration/kafka_external
TEST = $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadgroup --ignore $(CLIENTS)
TEST_ALONE = $(BIN)/python -m pytest -q --ignore $(CLIENTS)
# A run prints its slowest tests, and fails if one that is not deep takes longer; a slow machine may raise the limit.
CALL_S_MAX ?= 60
SLOWEST = --durations 20 --call-s-max $(CALL_S_MAX)
# Examples of each property with the marker, for test-deep; with 100 or fewer it runs none beyond those of the other runs.
EXAMPLES ?= 500

help:  ## list the targets
	@awk -F ':.*## *' '/^[a-z-]+:.*## / { printf "  make %-18s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP)  ## make .venv and install everything (idempotent)

$(STAMP): pyproject.toml
	@if [ -z "$(PYTHON)" ]; then \
		echo "SeaweedMQ needs Python 3.11 or newer and found none on PATH. Install it (Debian, Ubuntu: apt-get install" \
			"python3 python3-pip python3-venv; macOS: brew install python), or name it: make PYTHON=/path/to/python3.11 setup" >&2; \
		exit 1; fi
	@test -x $(BIN)/python || { echo "making $(VENV) with $$($(PYTHON) --version)"; \
		$(PYTHON) -m venv $(VENV) >/dev/null 2>&1 \
		|| { rm -rf $(VENV); $(PYTHON) -m venv --without-pip $(VENV) && $(PYTHON) -m pip --python $(BIN)/python install -q pip; } \
		|| { rm -rf $(VENV); echo "could not make $(VENV): install pip for $(PYTHON) (Debian, Ubuntu: apt-get install python3-pip python3-venv)" >&2; exit 1; }; }
	@echo "installing the dependencies (a few minutes the first time)"
	@$(BIN)/python -m pip install --disable-pip-version-check -q -e '.[dev]'
	@# Spark looks for formats among the files of the path, where an editable installation puts none.
	@echo "$(CURDIR)/seaweedmq/spark/discovery" \
		> "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/seaweedmq-discovery.pth"
	@touch $@

java:
	@version=$$("$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version 2>&1 | sed -nE 's/.*version "(1\.)?([0-9]+).*/\2/p' | head -n 1); \
	if [ "$${version:-0}" -lt 17 ]; then \
		echo "Spark needs Java 17 or newer on PATH (or JAVA_HOME) and found $${version:-none}." \
			"Install it (Debian, Ubuntu: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17)." >&2; \
		exit 1; fi

demo: java setup  ## the main job on real input: 336,776 flights through a local cluster, and back with Spark
	@$(BIN)/python -m benchmarks.demo

test: java setup  ## the test suite before a commit: real etcd, brokers, kills, Spark, Kafka clients (18 minutes)
	@status=0; $(TEST) $(SLOWEST) -m "not measures and not deep" || status=$$?; \
		$(TEST_ALONE) $(SLOWEST) -m "measures and not deep" || status=$$?; exit $$status

test-fast: setup  ## tests that start no process, with fewer examples and no simulation of whole clusters (4 minutes)
	@$(TEST) -m "not integration and not deep" --hypothesis-profile fast --ignore tests/sim

test-integration: java setup  ## tests that start etcd, brokers or Spark
	@status=0; $(TEST) -m "integration and not measures and not deep" || status=$$?; \
		$(TEST_ALONE) -m "measures and not deep" || status=$$?; exit $$status

test-deep: java setup  ## all other tests: long seeds, mutants, fault episodes; and EXAMPLES (500) of each property of files and clients
	@status=0; $(TEST) -m "deep and not measures" || status=$$?; $(TEST_ALONE) -m "deep and measures" || status=$$?; \
		if [ $(EXAMPLES) -gt 100 ]; then \
			EXAMPLES=$(EXAMPLES) $(TEST) -m examples --hypothesis-profile deep --timeout 3600 || status=$$?; \
		fi; exit $$status

test-clients: setup  ## Kafka clients that pip does not bring, where Maven, npm or Go are there (some 200 MB the first time)
	@$(BIN)/python -m pytest -q -n 2 --dist loadgroup $(CLIENTS)

check: setup  ## format, lint, types, import layers, stubs, language; no tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy seaweedmq benchmarks
	$(BIN)/lint-imports
	$(BIN)/python -m seaweedmq.rpc.generate --check
	$(BIN)/python -m tests.language

format: setup  ## rewrite the sources as `make check` wants them
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

proto: setup  ## regenerate the gRPC stubs from proto/
	$(BIN)/python -m seaweedmq.rpc.generate

bench: setup  ## the benchmark suite, or one of it: make bench SUITE=kafka
	$(BIN)/python -m benchmarks $(addprefix --suite ,$(SUITE))

bench-quick: setup  ## the benchmark suite in under two minutes
	$(BIN)/python -m benchmarks --quick $(addprefix --suite ,$(SUITE))

sim: setup  ## replay one seeded cluster simulation: make sim SEED=7
	$(BIN)/python -m tests.sim --seed $(SEED)

sim-long: setup  ## 10,000 seeded cluster simulations, in two processes (more than an hour)
	@$(BIN)/python -m tests.sim --seeds 0-9999 --processes 2 --keep-going

clean:  ## remove .venv and every cache
	rm -rf $(VENV) build dist ./*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
