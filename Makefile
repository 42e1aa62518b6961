# Two commands do everything on a fresh machine: `make demo` and `make test`.
# Both build the virtual environment from the lock file first; run again, they find it ready.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Workers keep to their half of the files, and take from the other's when they are done.
PYTEST := $(BIN)/pytest -p no:benchmark -n 2 --dist worksteal
# Threads inside small linear solves fight with each other: PDPG on 200 states takes five times as long with them.
export OPENBLAS_NUM_THREADS ?= 1
# What tests compile runs for milliseconds: with hardly any optimisation, in one piece, they take minutes of the
# processor less. Long campaigns are compiled as for users.
check test: export XLA_FLAGS ?= --xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1
# Tests start hundreds of interpreters: each would compile the source anew.
unexport PYTHONDONTWRITEBYTECODE

# The worked examples of docs/examples, in their order there.
EXAMPLES := cliff_walking taxi inventory frozen_lake cart_pole mountain_car

.PHONY: demo examples reproduce check quick test every test-long coverage lint types browser bench bench-speed bench-scale bench-learners bench-velocity bench-storm rates experience learning four-examples screenshot docs docs-serve dist lock clean help

help:            ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 16

demo: $(READY)   ## two problems solved and certified, and the paper's experiment in short, with a report
	@$(BIN)/python examples/demo.py

examples: $(READY) ## the worked examples in full; renews the pictures of docs/examples (about a quarter of an hour)
	@set -e; for name in $(EXAMPLES); do printf '\n== %s\n' $$name; $(BIN)/python examples/$$name.py --figure; done

reproduce: $(READY) ## the paper's experiments in full: figures, table and report in out/reproduce (goes on where it was)
	$(BIN)/cvxmdp reproduce all -o out/reproduce

# Types are checked beside the first tests: by itself that leaves a core idle for a minute.
check: $(READY)  ## lint, types and the quick half of the tests, for daily work (under three minutes)
	@$(MAKE) --no-print-directory --jobs lint types quick

test: browser $(READY) ## lint, types and every test but the long campaigns
	@$(MAKE) --no-print-directory --jobs lint types every

quick: $(READY)
	$(PYTEST) -m "not slow and not long"

every: $(READY)
	$(PYTEST) -m "not long"

test-long: browser $(READY) ## the long campaigns: what is learned, how fast, and what many models leave behind
	$(PYTEST) -m long

lint: $(READY)   ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)  ## mypy
	$(BIN)/mypy

bench: $(READY)  ## benchmarks: ratios measured in one run, with the hardware they were measured on
	$(BIN)/python benchmarks/cold_start.py
	$(BIN)/python benchmarks/build_model.py
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/certification.py
	$(BIN)/python benchmarks/pdpg.py
	$(BIN)/python benchmarks/pdpg_gaps.py
	$(BIN)/python benchmarks/sweeps.py
	$(BIN)/python benchmarks/environments.py

bench-speed: $(READY)  ## a few cases, kept in out/benchmarks and compared with the last run (pytest-benchmark)
	$(BIN)/pytest benchmarks/speed.py --benchmark-only --benchmark-columns=min,median,rounds --benchmark-storage=out/benchmarks \
		--benchmark-save=speed --benchmark-compare

coverage: $(READY) ## which lines the tests run, commands that they start included; half as long again
	COVERAGE_PROCESS_START=$(CURDIR)/pyproject.toml $(BIN)/coverage run -m $(PYTEST:$(BIN)/%=%) -m "not long"
	$(BIN)/coverage combine && $(BIN)/coverage report --skip-covered | tail -40

bench-scale: $(READY)  ## what solve chooses, and large models beside general solvers (about a quarter of an hour)
	$(BIN)/python benchmarks/choice.py
	$(BIN)/python benchmarks/scale.py

bench-gpu: $(READY)  ## large models and many lanes on an accelerator; without one, the same programs at small sizes
	$(BIN)/python benchmarks/gpu.py

bench-ray: $(READY)  ## sweeps by 1, 2 and 4 workers of Ray on this machine, and what a task costs beside its work
	$(BIN)/python benchmarks/ray_workers.py

bench-learners: $(READY)  ## ActorCritic with no settings on tasks of several kinds; runs are kept and added to (hours; SEEDS=, STEPS=)
	$(BIN)/python benchmarks/learners.py $(if $(SEEDS),--seeds $(SEEDS)) $(if $(STEPS),--steps $(STEPS))

bench-velocity: $(READY)  ## the velocity tasks of Safety-Gymnasium, three million steps each; runs are kept and added to (hours)
	$(BIN)/python benchmarks/learners.py --kind velocity

bench-storm: $(READY)  ## published answers of model checkers against ours: QVBS=, STORM= and PRISM= are folders of checkouts
	$(BIN)/python benchmarks/storm_models.py $(if $(QVBS),--qvbs $(QVBS)) $(if $(STORM),--storm $(STORM)) \
		$(if $(PRISM),--prism $(PRISM))

rates: $(READY)  ## measured rates of PDPG beside those of its theorem; writes docs/figures/rates.png
	$(BIN)/python benchmarks/rates.py

four-examples: $(READY) ## the paper's four examples: optimum, PDPG, VR-PDPG in several ways, ModelBased, 20 seeds each
	$(BIN)/python benchmarks/four_examples.py

experience: $(READY) ## counting and planning, measured: the tables of docs/results/experience.md (half an hour)
	$(BIN)/python benchmarks/experience.py

learning: $(READY) ## what VR-PDPG learns, measured: the tables and the figure of docs/results/learning.md
	$(BIN)/python benchmarks/learning.py

browser:         ## Chromium for the browser tests, from Debian's packages where that is possible
	@sh tests/install_chromium.sh

screenshot: $(READY) browser ## docs/figures/report.png, the report of a learned and an exact answer
	$(BIN)/python benchmarks/report_screenshot.py

docs: $(READY)   ## the documentation as a site in out/site, readable offline, its notebooks executed
	NO_MKDOCS_2_WARNING=1 NOTEBOOKS=true $(BIN)/mkdocs build

docs-serve: $(READY) ## the same, shown at a local address while pages are written
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

dist: $(READY)   ## wheel and sdist, tried in empty environments with each extra and every Python that is there
	rm -rf dist && $(BIN)/python -m hatchling build
	$(BIN)/python tests/release.py

lock:            ## resolve requirements.lock anew from pyproject.toml (needs uv)
	uv pip compile --universal --generate-hashes --no-emit-index-url --no-header --no-annotate \
		--python-version 3.11 --all-extras --group dev --group peers --group docs --upgrade pyproject.toml -o requirements.lock

clean:           ## remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "cvxmdp needs Python 3.11 or newer, this is " + sys.version'
	@echo "Setting up $(VENV) from requirements.lock (a few minutes, once)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(READY)
