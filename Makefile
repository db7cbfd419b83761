# The only interface: every target sets up what it needs. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check
export PIP_NO_WARN_SCRIPT_LOCATION := 1

.PHONY: help setup nightly test check lint test-scale bench dashboard demo clean docs
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: $(STAMP) ## make .venv and install everything, pinned by constraints.txt

$(STAMP): pyproject.toml kernels/pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) not found; install Python 3.11 or 3.12, or set PYTHON=..." >&2; exit 3; }
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' || { echo "make: $(PYTHON) is $$($(PYTHON) -V); Python 3.11 or 3.12 is needed (set PYTHON=...)" >&2; exit 3; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) (torch is large; a minute or two)" >&2
	@$(PIP) install -q -c constraints.txt -e '.[dev]' -e kernels
	@touch $(STAMP)

nightly: setup ## measure the smoke suite, store, judge, report
	@$(BIN)/attnwatch nightly --suite $(or $(SUITE),smoke); code=$$?; test $$code -le 1

test: setup ## every check: tests, import contracts, ruff, mypy, docs
	@$(MAKE) --no-print-directory check
	@$(BIN)/python -m pytest -m 'slow and not scale and not grid' $(PYTEST_ARGS)

check: setup ## the quick subset, under two minutes
	@$(MAKE) --no-print-directory lint
	@$(BIN)/python -m pytest -m 'not scale and not grid and not slow' -n auto --dist worksteal $(PYTEST_ARGS)

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python scripts/check_docs.py

test-scale: setup ## servers, faults, large inputs
	@$(BIN)/python -m pytest -m scale $(PYTEST_ARGS)

BENCHES := cli overhead adaptive interleaved ingest import detection explain incidents dashboard
bench: setup ## every claim about speed and memory, as ratios within one run
	@status=0; for b in $(BENCHES); do echo "== bench-$$b"; $(MAKE) --no-print-directory bench-$$b || status=1; done; exit $$status

bench-%: setup
	@$(BIN)/python scripts/bench_$*.py $(ARGS)

dashboard: setup ## open the dashboard on the store
	@$(BIN)/attnwatch dashboard

demo: setup ## fill demo.db with ninety nights made on this machine, faults planted, and open the dashboard on it
	@$(BIN)/python -m harness.demo --db demo.db
	@$(BIN)/attnwatch dashboard --db demo.db

docs: setup ## rewrite the generated pages
	@$(BIN)/python scripts/check_docs.py --write

clean: ## remove what was installed and built; the store and the reports stay
	rm -rf $(VENV) .asv/env .mypy_cache .ruff_cache .pytest_cache
