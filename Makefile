# Recipes for people and for CI; `make` alone lists them. Needs Python >= 3.11 with pip and venv, git and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q

.DEFAULT_GOAL := help
.PHONY: help setup up test unit lint format bench node conformance lock node-lock matrix clean

LIST := printf "  \033[1m%-12s\033[0m %s\n", $$1, $$2

help: ## List the recipes
	@echo "Use it:"
	@awk -F ':.*[^#]## ' '/^[a-z][a-z-]*:.*[^#]## / {$(LIST)}' $(MAKEFILE_LIST)
	@echo "Work on it:"
	@awk -F ':.*### ' '/^[a-z][a-z-]*:.*### / {$(LIST)}' $(MAKEFILE_LIST)

$(VENV)/.runtime: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "ToolDock needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12 $(MAKECMDGOALS)")'
	@echo "Setting up $(VENV) (once) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install --require-hashes -r requirements.lock
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: requirements-dev.lock $(VENV)/.runtime
	@echo "Installing the test tools (once) ..."
	@$(PIP) install --require-hashes -r requirements-dev.lock
	@touch $@

setup: $(VENV)/.runtime ## Prepare .venv from the lock

up: $(VENV)/.runtime ## Run the gateway on loopback
	@$(BIN)/tooldock up

test: $(VENV)/.dev ### Lint, type-check and run the whole test suite with coverage
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory node || echo "Without the Node parts some tests are skipped."; fi
	@$(MAKE) --no-print-directory lint
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest $(ARGS)
	@$(BIN)/coverage combine -q
	@$(BIN)/coverage report

unit: $(VENV)/.dev ### Run only the tests that start no processes
	@$(BIN)/pytest -m "not process and not network" $(ARGS)

lint: $(VENV)/.dev ### Check formatting, lint, types and the import contract
	@$(BIN)/ruff format --check -q .
	@$(BIN)/ruff check -q .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo > .lint-imports.log 2>&1 || { cat .lint-imports.log; rm -f .lint-imports.log; exit 1; }
	@rm -f .lint-imports.log

format: $(VENV)/.dev ### Format the code
	@$(BIN)/ruff format -q .
	@$(BIN)/ruff check -q --fix .

bench: $(VENV)/.dev ### Measure against the reference and the peers; prints the table
	@$(BIN)/python -m benchmarks $(ARGS)

NPM_CI := npm ci --ignore-scripts --no-audit --no-fund --loglevel=error

tests/node/node_modules/.installed: tests/node/package-lock.json
	@command -v npm >/dev/null || { echo "The MCP suites and clients run on Node and are installed by npm, which is not here (Debian: apt install npm)."; exit 1; }
	@echo "Installing the Node parts of the tests (once) ..."
	@cd tests/node && $(NPM_CI)
	@touch $@

node: tests/node/node_modules/.installed ### Install the MCP suites and clients for Node that the tests use

conformance: $(VENV)/.dev node ### Run the official MCP suites against the gateway; prints scenario by scenario
	@$(BIN)/pytest -q -s -p no:randomly tests/conformance $(ARGS)

LOCK := $(BIN)/uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-emit-find-links \
	--no-annotate --no-header --upgrade pyproject.toml

lock: $(VENV)/.runtime ### Refresh both lock files
	@$(LOCK) --group build -o requirements.lock
	@$(LOCK) --group dev -c requirements.lock -o requirements-dev.lock

node-lock: ### Refresh the lock file of the Node parts, without download addresses
	@cd tests/node && npm install --package-lock-only --omit-lockfile-registry-resolved --ignore-scripts --no-audit --no-fund --loglevel=error

matrix: ### Run the tests under another interpreter: make matrix PYTHON=python3.13
	@v=.venv-$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])') && \
	$(MAKE) --no-print-directory VENV=$$v PYTHON=$(PYTHON) $$v/.dev && \
	TOOLDOCK_TEST_VENVS=$(CURDIR)/$$v/environments $$v/bin/pytest -q $(ARGS)

clean: ## Remove everything `make` made
	rm -rf $(VENV) .venv-* .bench .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .coverage.* htmlcov tests/node/node_modules
