# Two commands matter: `make demo` and `make test`. Both set themselves up, below this folder only.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
# tests wait more than they work: more of them at once than there are cores
JOBS ?= 3
# where nobody watches and the machine's pace is anything, a test may fail once; it is listed as RERUN, and wants mending
AGAIN := $(if $(CI),--reruns 1 -raR)

.PHONY: help setup demo test check format bench screens lock clean

help:  ## what there is
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(VENV)/.ready  ## the environment in .venv

$(VENV)/.ready: requirements.lock pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r requirements.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -q src  # with what uv compiled: the command starts fast where Python may not keep bytecode, too
	@touch $@

demo: setup  ## the main job, offline, against simulators with faults; leaves the server running unless ARGS=--exit
	@$(BIN)/esclusa demo $(ARGS)

test: setup  ## everything, with its own PostgreSQL, emulators and browser
	@tools/system
	@$(BIN)/python -m pytest -n $(JOBS) $(AGAIN) --ignore=tests/faults/test_outages.py $(ARGS)
	@$(BIN)/python -m pytest $(AGAIN) tests/faults/test_outages.py  # it measures a pace: alone

check: setup  ## style, types, and the rooms' rules
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

format: setup  ## mend the style
	@$(BIN)/ruff format --quiet . && $(BIN)/ruff check --fix --quiet .

bench: setup  ## one table: ours, peers, the limit
	@$(BIN)/python -m bench $(ARGS)

screens: setup  ## pictures of every page of the console, for docs/screens
	@tools/system
	@$(BIN)/python -m tests.web.screens

lock:  ## write requirements.lock anew
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --all-extras --group dev pyproject.toml -o requirements.lock

clean:  ## remove the environment and caches
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache build dist
