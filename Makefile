# `make demo` and `make test` need nothing but Python 3.11 or newer: each sets up .venv on first use.
.DEFAULT_GOAL := help
.PHONY: help demo test test-all bench bench-full bench-more lint format types layers docs clean env-demo env-dev env-bench env-docs

PYTHON ?= python3
WORKERS ?= 2
export PYTHON

BIN := .venv/bin
# What `make bench` leaves out, a module each.
MORE := stiff stiff_precision explicit noise event_problems checkpoint_small_steps checkpoint_fields

PYTEST := $(BIN)/python -m pytest -q -n $(WORKERS)

help:
	@echo "make demo        fit the lynx and hare data from 4096 starts at once; writes lynx_hare.png"
	@echo "make test        every check that is not slow: lint, types, layers, tests, README"
	@echo "make test-all    the slow ones too, and the documentation site"
	@echo "make bench       compare with other libraries (at most 15 minutes); make bench-full: all sizes"
	@echo "make bench-more  stiff, stochastic, with events, checkpointed loops (a quarter of an hour)"
	@echo "make lint        ruff;  make format: let ruff rewrite;  make types;  make layers"
	@echo "make docs        build the documentation site into site/"
	@echo "make clean       remove what the above made, .venv included"

env-demo env-dev env-bench env-docs:
	@sh tools/make_env.sh $(@:env-%=%)

demo: env-demo
	$(BIN)/pullback demo

lint: env-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: env-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: env-dev
	$(BIN)/basedpyright

layers: env-dev
	$(BIN)/lint-imports

test: lint types layers
	$(PYTEST) -m "not slow"

test-all: lint types layers docs
	$(PYTEST)

bench: env-bench
	$(BIN)/python -m benchmarks

bench-full: env-bench
	$(BIN)/python -m benchmarks --full

bench-more: env-bench
	@for name in $(MORE); do echo "## $$name"; $(BIN)/python -m benchmarks.$$name || exit 1; done

docs: env-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf .venv site build dist .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
