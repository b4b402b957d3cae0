# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Without the variable the theme advertises its successor on every run. Not --quiet: --strict then counts no warnings.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
PIP    := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: setup demo test test-all check docs tables outputs mutants bench bench-quick clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) -e '.[demo]'
	touch $@

# torch comes first and by its pinned version: as a dependency of another package a larger build could be chosen.
$(VENV)/.dev: $(VENV)/.demo
	$(PIP) torch
	$(PIP) -e '.[dev,bench]'
	touch $@

setup: $(VENV)/.dev            ## everything for development

demo: $(VENV)/.demo            ## private models on two data sets: tables and report.html
	$(BIN)/conddp demo

check: $(VENV)/.dev            ## format, lint, types, and that the site can be built
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(MKDOCS)

docs: $(VENV)/.dev             ## the documentation site: open site/index.html
	$(MKDOCS)

test: check                    ## the fast suite, what CI runs
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-all: check                ## the fast suite and the slow one
	$(BIN)/python -m pytest -n 2

tables: $(VENV)/.dev           ## tables of algorithms, heads and rooms in the documentation
	$(BIN)/python -m docs_tools.tables

outputs: $(VENV)/.dev          ## what the code in README and docs prints
	$(BIN)/python -m docs_tools.outputs

mutants: $(VENV)/.dev          ## plant defects in a copy, one by one: the tests must catch each
	$(BIN)/python -m tests.privacy.mutants

bench: $(VENV)/.dev            ## speed beside other software: more than an hour; writes docs/speed.md (only="steps fits" for parts)
	$(BIN)/python benchmarks/speed $(if $(only),--only $(only))
	$(BIN)/python benchmarks/speed page

bench-quick: $(VENV)/.dev      ## the same on small sizes, in some minutes, for a look
	$(BIN)/python benchmarks/speed --quick

clean:
	rm -rf $(VENV) build site *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
