# Two commands: `make demo` and `make test`. Each sets up everything it needs in .venv.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test clean

demo: .venv/.demo
	$(BIN)/fernn demo --out out/demo

test: .venv/.test .venv/.chromium
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

# A test opens the report page in Chromium, and skips where there is none. It is looked for once, and
# taken from the system's packages where root runs this, in a container, in two minutes at most.
APT := env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=0 -o Acquire::http::Timeout=15
.venv/.chromium: .venv/.test
	@command -v chromium || command -v chromium-browser || { \
	    test "$$(id -u)" = 0 && echo "installing Chromium from the system's packages" && \
	    { timeout 60 $(APT) update && timeout 60 $(APT) install --yes --no-install-recommends chromium; } \
	        </dev/null >/dev/null 2>&1; \
	} || echo "no Chromium is here: the test of the report page in a browser will skip"
	@touch $@

clean:
	rm -rf .venv out
