# `make demo` and `make test` are all that a new machine needs: they make their environment first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help setup demo test lint types bench docs clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1 - \2/p' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

setup: $(STAMP) ## make the virtual environment

demo: $(STAMP) ## train on digits in 2 processes, then review the run
	$(BIN)/rankzero launch --cpu --num_processes 2 examples/digits.py --project_dir demo
	$(BIN)/rankzero review demo

test: $(STAMP) ## run the tests
	$(BIN)/python -m pytest

lint: $(STAMP) ## check style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP) ## check types
	$(BIN)/mypy

bench: $(STAMP) ## measure, beside plain PyTorch (and Accelerate, where it is installed)
	$(BIN)/python -m benchmarks

docs: $(STAMP) ## check that the commands and links in the documentation are true
	$(BIN)/python -m pytest tests/test_docs.py

clean: ## remove the environment and what the demo made
	rm -rf $(VENV) demo build *.egg-info
