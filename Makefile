# `make demo` and `make test` need only Python and make. They create a virtual environment and install all packages.
VENV   ?= .venv
PYTHON ?= python3
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --constraint constraints.txt
# Two processes run tests, with one thread each. Bytecode is written, because tests start many Python processes.
# worksteal keeps neighboring tests in one process, because they share fixtures.
TEST   := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

.PHONY: demo test suite test-slow sanitize coverage check bench bench-gpu docs clean

demo: $(VENV)/.core
	$(BIN)/autotransfer demo
	$(BIN)/autotransfer export demo-run --format onnx

# mypy uses one core, so it runs in parallel to the first tests.
test: lint
	@$(MAKE) --no-print-directory --jobs 2 types suite

suite: $(VENV)/.dev
	$(TEST)

test-slow: $(VENV)/.dev
	$(TEST) -m "slow or faults"

# Run the C kernels under sanitizers, for SECONDS in each build that this machine can run.
SECONDS ?= 60
sanitize: $(VENV)/.dev
	AUTOTRANSFER_SANITIZE=$(SECONDS) $(BIN)/python -m pytest -m slow tests/test_sanitize.py

# Run the tests and print the total coverage. Every process writes a file .coverage.*, which `coverage report` needs.
coverage: $(VENV)/.dev
	rm -f .coverage .coverage.*
	$(TEST) --cov --cov-report=
	@printf 'coverage: %s%%\n' "$$($(BIN)/coverage report --format=total)"

check: lint types

lint: $(VENV)/.dev
	$(BIN)/ruff check src tests benchmarks examples setup.py
	$(BIN)/ruff format --check src tests benchmarks examples setup.py

types: $(VENV)/.dev
	$(BIN)/mypy

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks --device cpu

bench-gpu: $(VENV)/.dev
	$(BIN)/python -m benchmarks --device cuda

docs: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -W --keep-going -q docs site
	@echo "open site/index.html"

clean:
	rm -rf $(VENV) build src/autotransfer/cpu/*.so dist demo-run bench-results site docs/auto_examples docs/reference/generated .coverage .coverage.*

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)

# If one of these files has changed, the package is installed again, which compiles the kernels.
BUILT_FROM := pyproject.toml constraints.txt setup.py src/autotransfer/cpu/kernels.c

$(VENV)/.core: $(BUILT_FROM) | $(VENV)/bin/python
	$(PIP) -e ".[onnx]"
	@touch $@

$(VENV)/.dev: $(BUILT_FROM) | $(VENV)/bin/python
	$(PIP) -e ".[dev]"
	@touch $@ $(VENV)/.core
