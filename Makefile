# The same commands run in CI. PYTHON is the interpreter that makes .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
unexport PYTHONDONTWRITEBYTECODE  # tests start hundreds of processes; each would compile all of envgen
PROCESSES := -n 2 --dist loadgroup --no-loadscope-reorder
HEAVY := cli model policies rollout sandboxes train environments/test_deaths.py store/test_hostile_runs.py store/test_parquet_rows.py test_groups.py test_hostile.py \
	pipelines/interpreter/test_makers.py pipelines/inspect pipelines/rubric pipelines/search/test_agents.py pipelines/search/test_agents_server.py \
	$(addprefix pipelines/general/test_,author.py difficulty.py domains.py example_pages.py gates_sabotage.py generate.py made_by_0_2_0.py planted_faults.py task_code.py twins.py)
SERVICES := bwrap or docker or postgres or ray or browser or gpu or toolchain

.PHONY: quickstart install trainer dev test test-slow test-core peers readme tour docs check bench format clean

quickstart: trainer  ## synthesize, prove, step, filter, train a policy; ends with a report
	$(BIN)/envgen quickstart --out runs/quickstart

install: $(VENV)/.installed  ## a virtual environment with envgen in it

$(VENV)/.installed: pyproject.toml setup.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

trainer: $(VENV)/.trainer  ## the same with what training needs (PyTorch)

$(VENV)/.trainer: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable '.[train]'
	touch $@

dev: $(VENV)/.dev  ## the same with the tools that tests and checks need

$(VENV)/.dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

test: dev  ## all tests but the slow proofs; parts whose service is missing skip and say so
	$(BIN)/python -P -m pytest $(PROCESSES) -m "not slow"

test-slow: dev  ## the proofs that take longer; SLOW='tests/store tests/train' names rooms
	$(BIN)/python -P -m pytest $(PROCESSES) -m slow $(SLOW)

peers: dev  ## the trainers and loaders of others, each installed in .peers/, play our exports and get our rewards
	ENVGEN_PEERS=1 $(BIN)/python -P -m pytest tests/peers -v -s -p no:cacheprovider --timeout 1500

readme: dev  ## the blocks of README and of the pages that teach, word for word, each page in an empty directory
	$(BIN)/python -P .ci/readme.py README.md docs/tour.md docs/domains.md docs/runners.md docs/policies.md docs/search.md docs/interpreter.md docs/proofs.md

tour: dev  ## the tour with its training blocks, which readme leaves out; it fails where the policy does not learn
	$(BIN)/python -P .ci/readme.py --slow docs/tour.md

test-core: dev  ## what to run after a change: no service, no process of its own, no PyTorch, nothing slow
	$(BIN)/python -P -m pytest $(PROCESSES) -m "not ($(SERVICES) or slow)" $(addprefix --ignore=tests/,$(HEAVY))

docs: dev  ## the API reference from docstrings, in build/api
	$(BIN)/python -P .ci/api.py build/api

check: dev  ## format, lint, import direction, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy

bench: dev  ## measure; every figure is printed beside its target or a peer
	$(BIN)/python -P benchmarks

format: dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
