BIN := .venv/bin
# After a change of the lock, the virtual environment keeps its version of Python.
PYTHON ?= $(shell test -x $(BIN)/python && echo $(BIN)/python || echo python3)

.PHONY: help venv wheel native native-test native-fuzz demo lint test test-rest test-all durations fuzz simulate docs audit long chaos pipeline update-locks
.DEFAULT_GOAL := help
# Every server, worker and command is a separate Python process. Without bytecode files, which container images often
# disable, each process compiles Dagster and PySpark again when it starts.
unexport PYTHONDONTWRITEBYTECODE

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' Makefile

demo: venv  ## Start the stack, run the main job, print its result, run until Ctrl-C (ONCE=1: stop at the end)
	@$(BIN)/lakehouse demo $(if $(ONCE),--once)

test: venv  ## Test each feature once, in two processes: the first tier of tests/tiers.py
	@$(BIN)/python -m tests.run_tier first

test-rest: venv  ## Run further cases, guides and tools: the tier `rest`, then `make fuzz simulate`
	@$(BIN)/python -m tests.run_tier rest
	@$(MAKE) --no-print-directory fuzz simulate

test-all: test test-rest  ## Run `make test` and `make test-rest`

durations: venv  ## Renew tests/durations.json with the last `make test` and `make test-rest`
	@$(BIN)/python -m tests.renew_durations

fuzz: venv  ## Test docs/types.md row by row, and generated schemas (MINUTES=20: new seeds; SEED=7 ONLY=avro: repeat one)
	@$(if $(MINUTES),FUZZ_MINUTES=$(MINUTES)) $(if $(SEED),FUZZ_SEED=$(SEED)) \
		$(BIN)/pytest tests/fuzz --numprocesses 2 --dist worksteal $(if $(ONLY)$(SEED),-k "generated_value and $(or $(ONLY),value)") --timeout 0 -o faulthandler_timeout=0 --tb short

simulate: venv  ## Run schedules of the simulation, of all kinds (SEEDS=10000, FIRST=0, KIND=readers); see tests/simulation/README.md
	@$(BIN)/python -m tests.simulation.simulate $(or $(SEEDS),1000) $(or $(FIRST),0) $(or $(KIND),all)

lint: venv  ## Check style, likely mistakes, security rules, types, layers and imports of all Python files
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/lint-imports
	@$(BIN)/python -m tools.structure
	@$(BIN)/python -m tools.import_budgets
	@$(BIN)/mypy

docs: venv  ## Build the documentation in site/; a broken link is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

# Exit code 3 means that no check failed but some could not be made, which is an error only with ONLINE=1.
audit: venv  ## Check locks, workflows and secrets, write the bill of materials (ONLINE=1: known vulnerabilities from osv.dev too)
	@$(BIN)/python -m tools.audit $(if $(ONLINE),--online) || { code=$$?; test $$code -eq 3 -a -z "$(ONLINE)"; }

update-locks: venv  ## Update requirements.lock and jars.lock (UPGRADE="boto3 …": upgrade these to the newest version)
	@$(BIN)/python -m tools.locks $(UPGRADE)
	@$(MAKE) --no-print-directory venv
	@$(BIN)/python -m tools.licences

long: venv  ## Run the tests for each night: the tier `night`, then a Spark cluster, killed workers and daemons
	@$(BIN)/python -m tests.run_tier night
	@$(BIN)/pytest -m long --timeout 3500 -o faulthandler_timeout=3600

pipeline: venv  ## Run the checks of a change before deployment on the embedded stack: see .github/workflows
	@.github/pipeline

chaos: venv  ## Inject faults at random for MINUTES=30, then one by one
	@LAKEHOUSE_CHAOS_SECONDS=$$(($(or $(MINUTES),30) * 60)) $(BIN)/pytest tests/faults -m stack --timeout 0 -o faulthandler_timeout=0

wheel: venv  ## Build the wheel in dist/
	@rm -f dist/*.whl
	@$(BIN)/uv build --quiet --wheel --no-build-isolation --python $(BIN)/python --out-dir dist
	@ls dist/*.whl

native: venv  ## Build and install the compiled decoder, which needs Rust's cargo; see docs/native.md
	@command -v cargo >/dev/null || { \
		echo "cargo is not installed. Nothing was built. Install Rust (https://rustup.rs), and run \`make native\` again"; \
		exit 1; }
	@$(BIN)/maturin build --quiet --release --locked --manifest-path native/Cargo.toml --out dist/native
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --reinstall dist/native/lakehouse_native-*.whl

native-test: venv  ## Test the crate of the compiled decoder, and check its style and likely mistakes
	@cargo fmt --check --manifest-path native/Cargo.toml
	@cargo clippy --quiet --locked --all-targets --no-default-features --manifest-path native/Cargo.toml -- -D warnings
	@cargo test --quiet --locked --no-default-features --manifest-path native/Cargo.toml

venv: .venv/installed  ## Create the virtual environment from requirements.lock

# pip installs only uv. Like all packages, it is verified by the hashes of the lock. A virtual environment that was not
# completed is removed, because the next run would keep its interpreter.
.venv/installed: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null || { \
		echo "$(PYTHON) is not Python 3.11, 3.12 or 3.13. Nothing was installed. Run \`make venv PYTHON=python3.12\`, with a version that is installed"; \
		exit 1; }
	@echo "Installing the packages of requirements.lock in .venv"
	@$(PYTHON) -m venv $(if $(filter $(BIN)/%,$(PYTHON)),,--clear ).venv && \
		sed -n '/^uv==/,/^    #/p' requirements.lock > .venv/uv.lock && \
		$(BIN)/python -m pip install --quiet --require-hashes -r .venv/uv.lock && \
		$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock && \
		$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e . && \
		touch $@ || { $(if $(filter $(BIN)/%,$(PYTHON)),,rm -rf .venv;) exit 1; }

native-fuzz:  ## Look for bytes at which the compiled decoder fails, with cargo-fuzz 0.13 and a nightly Rust (MINUTES=15 for each target, NIGHTLY=toolchain)
	@cd native/fuzz && for target in walk decide; do \
		cargo +$(or $(NIGHTLY),nightly) fuzz run --fuzz-dir . $$target -- \
			-max_total_time=$$(($(or $(MINUTES),15) * 60)) -max_len=4096 -timeout=20 -rss_limit_mb=4096 || exit 1; \
	done
