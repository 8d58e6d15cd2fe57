PYTHON ?= python3
BIN := .venv/bin

.PHONY: help venv demo lint test fuzz audit long chaos pipeline update-locks
.DEFAULT_GOAL := help
# Every server, worker and command is a Python process of its own. Without bytecode files, which container images often
# switch off, each compiles Dagster and PySpark again when it starts.
unexport PYTHONDONTWRITEBYTECODE

help:  ## Show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' Makefile

demo: venv  ## Start everything, run the main job, print its result, stay up until Ctrl-C (ONCE=1: stop at the end)
	@$(BIN)/lakehouse demo $(if $(ONCE),--once)

test: venv  ## Run all tests, two files at a time, each process with an embedded stack of its own
	@$(BIN)/pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder --ignore tests/fuzz

fuzz: venv  ## docs/types.md row by row, and generated schemas (MINUTES=20: with fresh seeds; SEED=7 ONLY=avro: one again)
	@$(if $(MINUTES),FUZZ_MINUTES=$(MINUTES)) $(if $(SEED),FUZZ_SEED=$(SEED)) \
		$(BIN)/pytest tests/fuzz --numprocesses 2 --dist worksteal $(if $(ONLY)$(SEED),-k "every_value and $(or $(ONLY),every)") -o faulthandler_timeout=0 --tb short

lint: venv  ## Style, likely mistakes, security rules, types and layers of all Python files
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/lint-imports
	@$(BIN)/mypy

# Exit code 3 means that nothing was found and something could not be checked, which is an error only with ONLINE=1.
audit: venv  ## Locks, workflows, secrets, bill of materials (ONLINE=1: known vulnerabilities too, from osv.dev)
	@$(BIN)/python -m tools.audit $(if $(ONLINE),--online) || { code=$$?; test $$code -eq 3 -a -z "$(ONLINE)"; }

update-locks: venv  ## Make requirements.lock and jars.lock follow what is asked for (UPGRADE="boto3 …": newest of these)
	@$(BIN)/python -m tools.locks $(UPGRADE)
	@$(MAKE) --no-print-directory venv
	@$(BIN)/python -m tools.licences

long: venv  ## The tests that `make test` leaves out: a Spark cluster, killed workers and daemons, a kill at every change
	@$(BIN)/pytest -m long -o faulthandler_timeout=3600

pipeline: venv  ## What a change must pass before it is deployed, on the embedded stack: see .github/workflows
	@.github/pipeline

chaos: venv  ## Everything that goes wrong, at random for MINUTES=30, then one by one
	@LAKEHOUSE_CHAOS_SECONDS=$$(($(or $(MINUTES),30) * 60)) $(BIN)/pytest tests/faults -m stack -o faulthandler_timeout=0

venv: .venv/installed  ## Make the virtual environment from requirements.lock

# pip installs nothing but uv, held to the lock's hashes as everything else is.
.venv/installed: requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv
	@sed -n '/^uv==/,/^    #/p' requirements.lock > .venv/uv.lock
	$(BIN)/python -m pip install --quiet --require-hashes -r .venv/uv.lock
	$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $@
