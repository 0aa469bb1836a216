# Start with `make demo` or `make test`. Both install what they need into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
# Parallel tests. They mostly wait, so more than the number of cores is faster.
JOBS ?= 3
# The seed of `make chaos`; none: a new one.
SEED ?=
# In CI, where the speed of the machine varies, a failed test runs once more. It is listed as RERUN
# and must be fixed.
AGAIN := $(if $(CI),--reruns 1 -raR)

.PHONY: help setup demo test check model chaos deploy-check format bench docs screens lock clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(VENV)/.ready  ## create the environment in .venv

$(VENV)/.ready: requirements.lock pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python \
		--require-hashes -r requirements.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	@# The command also starts fast where Python cannot write bytecode.
	@$(BIN)/python -m compileall -q src
	@touch $@

demo: setup  ## run all pipelines against simulators, then the console (ARGS=--exit: without it)
	@$(BIN)/esclusa demo $(ARGS)

test: setup  ## run all tests, with their own PostgreSQL, emulators and browser
	@tools/system
	@# Neighbouring tests share servers, so each process has a run of them, and takes from others.
	@$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(AGAIN) \
		--ignore=tests/faults/test_outages.py $(ARGS)
	@# These tests measure rates, so nothing else may run beside them.
	@$(BIN)/python -m pytest $(AGAIN) tests/faults/test_outages.py

check: setup  ## check style, types, import contracts and vocabulary
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python -m pytest -q -p no:cacheprovider tests/test_vocabulary.py

model: setup  ## check the model of leases with Spin, and that each mutant of it fails
	@tools/system spin gcc
	@$(BIN)/python tests/model/check.py

chaos: setup  ## run workers under faults and check the invariants (SEED=7, ARGS=--help)
	@$(BIN)/python -m tests.chaos $(if $(SEED),--seed $(SEED)) $(ARGS)

deploy-check: setup  ## check the files of deploy/ with promtool, Kubernetes' schemas and systemd
	@tools/system prometheus sprig
	@test -x .cache/kubernetes/bin/kubernetes-validate || ($(PYTHON) -m venv .cache/kubernetes && \
		.cache/kubernetes/bin/python -m pip install --quiet --disable-pip-version-check \
		kubernetes-validate==1.37.0)
	@$(BIN)/python deploy/check.py .cache/kubernetes/bin/kubernetes-validate

format: setup  ## fix the style
	@$(BIN)/ruff format --quiet . && $(BIN)/ruff check --fix --quiet .

bench: setup  ## compare with other queues and the bare database
	@$(BIN)/python -m bench $(ARGS)

docs: setup  ## build the site of the documentation in build/site
	@$(BIN)/python -m tools.docs build

screens: setup  ## take the pictures of the console in docs/screens
	@tools/system
	@$(BIN)/python -m tests.web.screens

lock:  ## update requirements.lock
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-header --no-annotate --all-extras --group dev pyproject.toml -o requirements.lock

clean:  ## remove the environment and caches
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache build dist
