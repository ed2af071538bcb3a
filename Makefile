# The two commands of the README are `make demo` and `make test`. They need Python 3.10 or newer and
# install what they use into $(VENV). The stamps there are redone when their sources change.

PYTHON ?= python3
VENV ?= .venv
EXTRAS ?= dev
SECONDS ?=
DATASET ?=
SEED ?=
ROWS ?=
FAULTS ?=
SCHEDULES ?= 1000000
BROKER ?=
JOBS ?=
ARGS ?=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
comma := ,
# Folders are among the sources, because a deleted file changes nothing else.
SOURCES := pyproject.toml $(shell find schemas service workers -name __pycache__ -prune -o -print)
PACKAGE := $(VENV)/package.stamp
PARALLEL := $(if $(JOBS),-n $(JOBS) --dist worksteal)
DEPENDENCIES := $(VENV)/dependencies-$(subst $(comma),-,$(EXTRAS)).stamp

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test test-kafka chaos simulate lint format bench docs clean

help:
	@echo "make demo        real rows through the whole pipeline, with a live table (SECONDS=30 DATASET=digits)"
	@echo "make test        all tests, on the embedded broker (JOBS=4 ARGS='-k windows')"
	@echo "make test-kafka  the integration tests again, on Apache Kafka (needs Java 17 and Maven)"
	@echo "make chaos       rows while workers and broker die (SEED='1 2' ROWS=200000 FAULTS=24 BROKER=kafka)"
	@echo "make simulate    schedules of all that can go wrong, no broker (SCHEDULES=1000000 ARGS='--processes 2')"
	@echo "make lint        ruff, strict mypy and the import contracts"
	@echo "make format      let ruff rewrite the sources"
	@echo "make bench       measure, and rewrite docs/performance.md, scale.md and results.md (ARGS=--quick)"
	@echo "make docs        the documentation site, in build/site"
	@echo "make setup       install into $(VENV) (EXTRAS=all,dev adds torch)"
	@echo "make clean       remove what make made"

setup: $(PACKAGE)

demo:
	@$(MAKE) --no-print-directory setup EXTRAS=demo
	@$(BIN)/attributary demo $(if $(SECONDS),--seconds $(SECONDS)) $(if $(DATASET),--dataset $(DATASET))

test: setup
	$(BIN)/pytest $(PARALLEL) $(ARGS)

test-kafka: setup
	$(BIN)/pytest -m integration --broker kafka $(PARALLEL) $(ARGS)

chaos: setup
	$(BIN)/python tests/support/chaos.py $(if $(SEED),--seed $(SEED)) $(if $(ROWS),--rows $(ROWS)) \
	  $(if $(FAULTS),--faults $(FAULTS)) $(if $(BROKER),--broker $(BROKER)) $(ARGS)

simulate: setup
	$(BIN)/python tests/support/simulate.py --schedules $(SCHEDULES) $(ARGS)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p attributary
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup
	$(BIN)/python -m benchmarks $(ARGS)

docs:
	@$(MAKE) --no-print-directory setup EXTRAS=docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict -q -f docs/site/mkdocs.yml
	@echo "written: build/site/index.html"

clean:
	rm -rf $(VENV) benchmarks/.venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "error: attributary needs Python 3.10 or newer, and '$(PYTHON)' is not: make PYTHON=python3.12" >&2; exit 2; }
	@echo "creating $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { \
	  echo "error: no virtual environment: install Python's venv module (Debian: apt install python3-venv)" >&2; \
	  rm -rf $(VENV); exit 2; }

$(DEPENDENCIES): pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing the packages for: $(EXTRAS)"
	@rm -rf build
	@$(PIP) install -c constraints.txt setuptools ".[$(EXTRAS)]" || { \
	  echo "error: pip could not install the packages (its reason is above); the first time needs a package index" >&2; \
	  exit 2; }
	@rm -rf build; touch $@

# The wheel, not the sources, is what the demonstration and the tests run. pip builds into build/
# and would take deleted files from there.
$(PACKAGE): $(DEPENDENCIES) $(SOURCES)
	@rm -rf build
	@$(PIP) install --no-deps --no-build-isolation --force-reinstall . || { \
	  echo "error: the package could not be built" >&2; exit 2; }
	@rm -rf build; touch $@
