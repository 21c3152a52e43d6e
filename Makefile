# Two commands: `make demo` and `make test`. Each sets up everything it needs in .venv.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test clean

demo: .venv/.demo
	$(BIN)/fernn demo --out out/demo

test: .venv/.test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -n 2 -m "not gpu"

.venv/.demo: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv || { $(PYTHON) -m pip install virtualenv && $(PYTHON) -m virtualenv .venv; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[experiments]'
	touch $@

.venv/.test: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv || { $(PYTHON) -m pip install virtualenv && $(PYTHON) -m virtualenv .venv; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[experiments,kth,dev]'
	touch $@

clean:
	rm -rf .venv out
