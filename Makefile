# `make` alone lists what there is. Everything runs from .venv, which `make setup` keeps in step
# with requirements/*.txt; once that is done nothing here needs the network.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --no-input
ARGS ?=
WORKERS ?= 2
export PYTHON ?= python3

.PHONY: help setup run test test-unit conformance check fmt lint types lock bench chaos harness build clean

help:  ## List these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: .venv/dev.stamp  ## Create .venv with everything that development needs

# Each lock is a set of exact versions with hashes, whole as it is: pip is told not to look for more,
# as it finds `name[extra]` unpinned beside `name` once a newer version is out.
# The project itself is linked in, not copied.
.venv/%.stamp: requirements/%.txt pyproject.toml
	@scripts/ensure-venv
	$(INSTALL) --require-hashes --no-deps -r $<
	$(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

run: .venv/core.stamp  ## Start Celeriac here: store, worker, web and the demo agent (ARGS="--port 9000")
	$(BIN)/celeriac dev $(ARGS)

test: .venv/dev.stamp  ## Run every test, browser and crash tests included (ARGS="-k approval")
	@scripts/ensure-chromium
	@PYTHON=$(CURDIR)/$(BIN)/python scripts/ensure-node-tools
	$(BIN)/pytest -n $(WORKERS) --dist loadgroup tests $(ARGS)

test-unit: .venv/dev.stamp  ## Run the pure tests only, in seconds
	$(BIN)/pytest tests/unit $(ARGS)

conformance: .venv/dev.stamp  ## Run the official MCP conformance suite against our client
	@PYTHON=$(CURDIR)/$(BIN)/python scripts/ensure-node-tools
	$(BIN)/python -m tests.mcp_conformance

harness: .venv/dev.stamp  ## The same scenarios for every framework's adapter, as a table
	$(BIN)/python -m tests.harness $(ARGS)

chaos: .venv/dev.stamp  ## Kill everything for minutes and count effects (ARGS="--sessions 300 --seed 42")
	$(BIN)/python -m tests.chaos $(ARGS)

check: .venv/dev.stamp lint types  ## Everything that must hold besides the tests
	$(BIN)/lint-imports --no-logo
	$(BIN)/python scripts/check_tree.py
	$(BIN)/python scripts/locks.py check
	$(BIN)/codespell

fmt: .venv/dev.stamp  ## Format, and fix what ruff can fix
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

lint: .venv/dev.stamp  ## Ruff: rules and format
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: .venv/dev.stamp  ## Mypy, strict
	$(BIN)/mypy

lock: .venv/dev.stamp  ## Solve the dependencies again (ARGS=--upgrade takes newer versions)
	$(BIN)/python scripts/locks.py write $(ARGS)

bench: .venv/dev.stamp  ## Measure, beside a stock Celery chain in the same run
	$(BIN)/python -m benchmarks $(ARGS)

build: .venv/dev.stamp  ## Build sdist and wheel into dist/
	$(BIN)/python -m build --no-isolation

clean:  ## Remove .venv, builds and caches; sessions in .celeriac/ stay
	rm -rf .venv dist build .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
