# The README's two commands. Each makes its own virtual environment, with the versions tested together
# (constraints/), and does the set-up again only when those change.
#
#   make demo    train, export and verify on the embedded data
#   make test    lint, types and all tests
#
# and, where there is a Python 3.12:
#
#   make test-onnx2tf2    the export tests with onnx2tf 2, in .venv-onnx2tf2
#
# and, on Debian with qemu-user:
#
#   make test-arm64    files on an emulated ARM processor

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
CONSTRAINTS := constraints/python$(VERSION).txt
DEMO := .venv
TEST := .venv-test
PYTHON312 ?= $(shell command -v python3.12)
ONNX2TF2 := .venv-onnx2tf2

.PHONY: demo test test-onnx2tf2 test-arm64 arm64 lint format constraints clean

demo: $(DEMO)/ready
	SPARSETORCH_RUNTIMES=$(CURDIR)/$(DEMO)/runtimes $(DEMO)/bin/python recipes/digits/main_job.py

test: $(TEST)/ready lint
	$(TEST)/bin/python -m pytest

test-onnx2tf2: $(TEST)/ready $(ONNX2TF2)/ready
	SPARSETORCH_ONNX2TF_PYTHON=$(CURDIR)/$(ONNX2TF2)/bin/python $(TEST)/bin/python -m pytest -m onnx2tf2

test-arm64: arm64
	$(TEST)/bin/python -m pytest -m arm64

arm64: $(TEST)/ready
	SPARSETORCH_RUNTIMES=$(CURDIR)/$(TEST)/runtimes $(TEST)/bin/sparsetorch runtime install emulated-arm64

lint: $(TEST)/ready
	$(TEST)/bin/ruff check .
	$(TEST)/bin/ruff format --check .
	$(TEST)/bin/mypy

format: $(TEST)/ready
	$(TEST)/bin/ruff format .
	$(TEST)/bin/ruff check --fix .

$(CONSTRAINTS):
	@echo "No tested set of versions for Python $(VERSION); there is one for: $(patsubst constraints/python%.txt,%,$(wildcard constraints/*.txt))." >&2
	@echo "Name another interpreter: make demo PYTHON=/path/to/python3.11" >&2
	@exit 1

# One pip call for everything: onnx2tf pins numpy, protobuf, onnx and TensorFlow exactly, and a second call would undo it.
$(DEMO)/ready: pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv $(DEMO)
	$(DEMO)/bin/pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS) --editable '.[export,runtime]'
	SPARSETORCH_RUNTIMES=$(CURDIR)/$(DEMO)/runtimes $(DEMO)/bin/sparsetorch runtime install wasm || \
	    echo "The demo goes without its last step, running the file in WebAssembly." >&2
	touch $@

# The runtimes that the tests observe files in lie inside the environment: nothing is downloaded when tests run. `emulated` brings
# a second LiteRT beside the one that onnx2tf pins (exported files have to run in both) and needs qemu-user.
$(TEST)/ready: pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv $(TEST)
	$(TEST)/bin/pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS) --editable '.[export,dev]'
	SPARSETORCH_RUNTIMES=$(CURDIR)/$(TEST)/runtimes $(TEST)/bin/sparsetorch runtime install wasm emulated
	touch $@

$(ONNX2TF2)/ready: constraints/onnx2tf2-python3.12.txt
	$(PYTHON312) -m venv $(ONNX2TF2)
	$(ONNX2TF2)/bin/pip install --quiet --disable-pip-version-check --requirement constraints/onnx2tf2-python3.12.txt
	touch $@

# After a deliberate upgrade, in an environment whose tests pass.
constraints:
	$(TEST)/bin/pip freeze --exclude-editable > $(CONSTRAINTS)

clean:
	rm -rf $(DEMO) $(TEST) $(ONNX2TF2) .mypy_cache .pytest_cache .ruff_cache .hypothesis
