# `make demo` and `make test` need Python 3.11, pip and venv; everything else they install into .venv themselves.
PYTHON ?= python3.11
BIN := .venv/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
CORES ?= 2

.PHONY: demo test test-slurm lint docs clean bench-materialize bench-aggregate bench-dispatch bench-library bench-growth bench-plan bench-scale bench-repair

.venv/.ready: envs/lock.txt pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade pip setuptools wheel
	$(BIN)/pip install --quiet --disable-pip-version-check --requirement envs/lock.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

demo: .venv/.ready
	$(BIN)/snakemake --cores $(CORES)
	@echo
	@$(BIN)/rollmake status results/demo
	@echo "report:   results/demo/report.html"
	@echo "score:    results/demo/rollouts_aggregate_metrics.json"
	@echo "coverage: results/demo/coverage.json"

test: .venv/.ready
	$(BIN)/pytest --numprocesses $(CORES)

# Needs root and apt: installs SLURM, brings it up and takes it down. `DB=1` gives it accounting; `SELECT=slurm_quick` is
# what CI runs.
SELECT ?= slurm
test-slurm: .venv/.ready
	$(BIN)/pytest -m $(SELECT) tests/slurm

lint: .venv/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check Snakefile workflow/rules
	$(BIN)/snakemake --lint
	$(BIN)/python docs/generate.py --check

# Needs nginx. With PEER_PYTHON (see below) the peer is measured too.
bench-dispatch: .venv/.ready
	$(BIN)/python -m benchmarks.dispatch $(if $(PEER_PYTHON),--peer-python "$(PEER_PYTHON)")

# The same for rollouts inside a Python program.
bench-library: .venv/.ready
	$(BIN)/python -m benchmarks.library $(if $(PEER_PYTHON),--peer-python "$(PEER_PYTHON)")

# Needs nginx: memory of a collector from 10,000 to 1,000,000 rollouts, and how long it takes to open 1 GB of journal.
bench-growth: .venv/.ready
	$(BIN)/python -m benchmarks.growth

# PEER_PYTHON: the Python of an environment with nemo-gym 0.7.0, beside which the stage materialize is measured.
bench-materialize: .venv/.ready
	$(BIN)/python benchmarks/materialize.py --peer-python "$(PEER_PYTHON)"

# The same Python, beside which the metrics are measured.
bench-aggregate: .venv/.ready
	$(BIN)/python benchmarks/aggregate.py --peer-python "$(PEER_PYTHON)"

# How long a dry run of 1,000 and of 10,000 shards takes.
bench-plan: .venv/.ready
	$(BIN)/python benchmarks/plan.py

bench-scale: .venv/.ready
	$(BIN)/python benchmarks/scale.py

bench-repair: .venv/.ready
	$(BIN)/python benchmarks/repair.py 60000 700
	$(BIN)/python benchmarks/repair.py 60000 2000
	$(BIN)/python benchmarks/repair.py 20000 8000

docs: .venv/.ready
	$(BIN)/python docs/generate.py

clean:
	rm -rf .venv build
