# The README's two commands. Each makes its own virtual environment, with the versions tested together
# (constraints/), and does the set-up again only when those change.
#
#   make demo    train, export and verify on the embedded data
#   make test    lint, types and all tests

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
CONSTRAINTS := constraints/python$(VERSION).txt
DEMO := .venv
TEST := .venv-test

.PHONY: demo test lint format constraints clean

demo: $(DEMO)/ready
	$(DEMO)/bin/python recipes/digits/main_job.py

test: $(TEST)/ready lint
	$(TEST)/bin/python -m pytest

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
	$(DEMO)/bin/pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS) --editable '.[export]'
	touch $@

$(TEST)/ready: pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv $(TEST)
	$(TEST)/bin/pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS) --editable '.[export,dev]'
	touch $@

# After a deliberate upgrade, in an environment whose tests pass.
constraints:
	$(TEST)/bin/pip freeze --exclude-editable > $(CONSTRAINTS)

clean:
	rm -rf $(DEMO) $(TEST) .mypy_cache .pytest_cache .ruff_cache .hypothesis
