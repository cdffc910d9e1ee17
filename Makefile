# Everything a contributor needs. `make` alone lists the targets.

VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
DEV    := $(VENV)/.ready-dev
DOCS   := $(VENV)/.ready-docs
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

PYTHON ?=
ARGS   ?=
JOBS   ?= auto

PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist worksteal
# The tests start many processes: none of them should compile its modules anew.
unexport PYTHONDONTWRITEBYTECODE

BENCH_DATA ?=
SECONDS    ?= 600
SIZES      ?= 10000,68000,300000
BASE       := base=$(BIN)/python,bench,baseline:SessionDB
OURS       := ours=$(BIN)/python,src,hermes_state:SessionDB

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev run test test-fast test-full coverage lint format docs bench bench-recall bench-gateway \
	bench-batch soak release clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

setup: $(READY) ## Make .venv with what running needs: core, chat, tui (PYTHON=... chooses the interpreter)

setup-dev: $(DEV) ## Add what tests and checks need: linters, and servers to test against

$(READY): pyproject.toml constraints.txt
	@if ! $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
		for candidate in $(PYTHON) python3 python3.13 python3.12 python3.11; do \
			if $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
				chosen=$$candidate; break; \
			fi; \
		done; \
		if [ -z "$$chosen" ]; then \
			echo "setup: no Python 3.11 or newer was found; install one, or name it: make setup PYTHON=/path/to/python3" >&2; \
			exit 1; \
		fi; \
		$$chosen -m venv --clear $(VENV) || exit 1; \
	fi
	$(PIP) -e '.[chat,tui]'
	$(BIN)/python -m compileall -q src
	@$(BIN)/python -m compileall -qq $(VENV)/lib || true
	@touch $(READY)

$(DEV): $(READY)
	$(PIP) -e '.[dev]'
	@$(BIN)/python -m compileall -qq $(VENV)/lib || true
	@touch $(DEV)

$(DOCS): $(READY)
	$(PIP) -e '.[docs]'
	@touch $(DOCS)

run: setup ## Start hermes (ARGS="sessions list" passes arguments)
	@$(BIN)/hermes $(ARGS)

test: setup-dev ## Run the tests that need no server and no long time, in parallel (ARGS="-k title" passes arguments)
	$(PYTEST) --tier test $(ARGS)

test-fast: setup-dev ## Run the quick tests only, for the inner loop
	$(PYTEST) --tier fast $(ARGS)

test-full: setup-dev ## Run the tests that `make test` leaves out: homeservers, a model, kill matrices, long property runs
	$(PYTEST) --tier full $(ARGS)

coverage: override ARGS += --cov --cov-report=term
coverage: export COVERAGE_CORE = $(shell $(BIN)/python -c 'import sys; print("sysmon" if sys.version_info >= (3, 12) else "ctrace")' 2>/dev/null)
coverage: test ## Run the tests of `make test` and print the line coverage of each module

lint: setup-dev ## Check style, types, which way imports point, and licences of dependencies
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_licences.py

format: setup-dev ## Sort imports and lay the code out
	$(BIN)/ruff check --select I --fix .
	$(BIN)/ruff format .

docs: $(DOCS) ## Build the site of the documentation in site/; broken links and undocumented verbs are errors
	$(BIN)/python -m tools.api_reference --check
	$(BIN)/python -m tools.check_links
	$(BIN)/zensical build --clean --strict

bench: setup ## Measure the store beside the plain baseline (half an hour; SIZES=10000 for a minute)
	@work=$$(mktemp -d) && trap 'rm -rf "$$work"' EXIT INT TERM && \
	$(BIN)/python bench/store_bench.py --impl $(BASE) --impl $(OURS) \
		--sizes $(SIZES) --read-clock cpu --work "$$work" $(ARGS)
	@$(BIN)/python bench/more_bench.py

bench-recall: setup ## Measure how well questions find their conversation (BENCH_DATA=folder of recall_dev.json)
	@if [ ! -f "$(BENCH_DATA)/recall_dev.json" ]; then \
		echo "bench-recall: skipped, there is no recall_dev.json in BENCH_DATA='$(BENCH_DATA)'"; \
	else \
		$(BIN)/python bench/recall_bench.py --data "$(BENCH_DATA)/recall_dev.json" --by-category \
			--impl $(BASE) --impl $(OURS) $(ARGS); \
	fi

bench-gateway: setup-dev ## Measure the gateway under load and with kills (ARGS="--base TREE" compares with another checkout)
	@$(BIN)/python bench/gateway_bench.py $(ARGS)

bench-batch: setup ## Measure processor time and memory of a batch for each prompt, at 100 and 1,000 prompts
	@$(BIN)/python bench/batch_bench.py $(ARGS)

soak: setup-dev ## Load the gateway for SECONDS, with random kills of it and of the platform (ten minutes)
	@$(BIN)/python bench/gateway_soak.py --seconds $(SECONDS) $(ARGS)

release: setup-dev ## Build the wheel and sdist of HEAD, test the wheel, tag it (ARGS=--dry-run makes no tag)
	$(BIN)/python -m tools.release $(ARGS)

clean: ## Remove .venv and everything that tools left behind
	rm -rf $(VENV) build dist site .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache \
		.coverage htmlcov src/*.egg-info
	find src tests bench tools -name __pycache__ -type d -prune -exec rm -rf {} +
