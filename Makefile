# Two commands matter: `make up` (a running platform) and `make test` (every check, the same as in CI).
# The environment lives in .venv, brought up to date when pyproject.toml changes. Checks use the exact versions of
# .ci/constraints.txt, so that they say the same everywhere.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed-$(shell cat pyproject.toml .ci/constraints.txt | sha256sum | cut -c1-12)
SHELL := /bin/bash
# Many tests wait for a real server: more of them than cores may run at once.
WORKERS ?= 4
# Compiled modules are kept whatever the machine's own setting: hundreds of servers and commands are started.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help up down test test-all coverage check format lint types layers unit system programs bench docs screenshots clean

help:  ## what there is to make
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

up: $(VENV)/.up  ## start Isthmus here, in the background, and say how to use it
	@$(BIN)/isthmus up --detach
	@echo "  (isthmus is $(CURDIR)/$(BIN)/isthmus; add it to your PATH:  export PATH=$(CURDIR)/$(BIN):\$$PATH)"

down: $(VENV)/.up  ## stop it; jobs go on
	@$(BIN)/isthmus down

test: system $(STAMP) programs check unit  ## install what is needed and run every check

check: format lint types layers  ## format, lint, types, layers

format: $(STAMP)
	$(BIN)/ruff format --check src tests benchmarks docs
lint: $(STAMP)
	$(BIN)/ruff check src tests benchmarks docs
types: $(STAMP)
	$(BIN)/mypy
layers: $(STAMP)
	$(BIN)/lint-imports
unit: $(STAMP)
	@$(SHELL) .ci/measured $(BIN) -n $(WORKERS); measured=$$?; \
	  $(SHELL) .ci/unit $(BIN)/pytest -n $(WORKERS) -m "not measured" && exit $$measured

test-all: system $(STAMP) programs check  ## the same with every variant and every crash point, not a sample of them; takes hours
	@$(SHELL) .ci/unit $(BIN)/pytest -n $(WORKERS) --crash-points all --all-variants

# Python 3.11 measures by tracing, which doubles the time of the tests: `make test` measures a part (.ci/measured).
coverage: system $(STAMP) programs  ## lines and branches that the tests reach, in all processes that they start
	@mkdir -p .coverage && $(BIN)/coverage erase
	@$(SHELL) .ci/unit "$(BIN)/coverage run -m pytest" -n $(WORKERS)
	@$(BIN)/coverage combine -q && $(BIN)/coverage report

bench: $(STAMP)  ## measure, and write docs/benchmarks*.md
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.scheduling.page
	$(BIN)/python -m benchmarks.pools --page docs/benchmarks-pools.md

docs: $(STAMP)  ## write the generated pages of docs/
	$(BIN)/python docs/generate.py

screenshots: system $(STAMP)  ## take docs/images/console-*.png in a real browser
	$(BIN)/python docs/screenshots.py

# Built once per machine, in about five minutes, while the other checks run; the tests that need them wait.
programs: $(STAMP)  ## Kubernetes' own programs and a newer Slurm, in the background
	@$(BIN)/isthmus lab binaries >$(VENV)/kubernetes.log 2>&1 </dev/null &
	@$(BIN)/isthmus lab binaries --release trixie >$(VENV)/slurm.log 2>&1 </dev/null &

system:  ## Debian packages that the tests use
	@$(SHELL) .ci/system-packages

clean:  ## remove the environment
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache

# The platform needs only its own dependencies, so that the first start is quick.
$(VENV)/.up: pyproject.toml
	@test -x $(BIN)/isthmus && $(BIN)/isthmus version >/dev/null 2>&1 || $(SHELL) .ci/environment $(PYTHON) $(VENV) -e ".[postgres]"
	@touch $@

$(STAMP): pyproject.toml .ci/constraints.txt
	@$(SHELL) .ci/environment $(PYTHON) $(VENV) -e ".[postgres]" --group dev -c .ci/constraints.txt
	@rm -f $(VENV)/.installed-*; touch $@ $(VENV)/.up
