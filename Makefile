# Everything from a clean clone: `make test`, `make demo`. Nothing is installed outside .venv and the user's cache folder.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
PY := $(VENV)/bin/python
BOOTSTRAP := .venv-bootstrap
# The caller's Python settings and virtual environment must not reach ours.
unexport PYTHONHOME PYTHONPATH VIRTUAL_ENV CONDA_PREFIX UV_PYTHON UV_PROJECT_ENVIRONMENT

.PHONY: help setup demo examples recordings adopt tutorial docs test newest mutants faults fuzz lint smoke lowest version release requirements clean

help: ## say what there is
	@sed -nE 's/^([a-z]+):.*## (.*)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

setup: $(VENV)/.pythons ## make .venv and have the target interpreters

DEMO := cd .ftgate/demo && $(CURDIR)/$(PY) -m pytest --ftgate --ftgate-test-time 80s
DEMO_GIT := git -C .ftgate/demo -c user.name=demo -c user.email=demo@example.invalid

demo: setup ## measure an example on both builds and show the verdicts (a minute, once the interpreters are there)
	@rm -rf .ftgate/demo && mkdir -p .ftgate/demo && cp examples/demo/test_checksum.py .ftgate/demo/
	@printf '[pytest]\nftgate_install =\n' > .ftgate/demo/pytest.ini
	@$(DEMO_GIT) init --quiet && $(DEMO_GIT) add . && $(DEMO_GIT) commit --quiet -m "What is measured"
	@echo "== 1/3 record a baseline"
	$(DEMO) --ftgate-update=new
	@echo "== 2/3 gate the same code: nothing is measured"
	$(DEMO)
	@echo "== 3/3 gate code that got slower: it is measured beside the commit that was recorded"
	@sed -i.orig 's/^ROUNDS = 80$$/ROUNDS = 120/' .ftgate/demo/test_checksum.py
	$(DEMO) --ftgate-report html:ftgate.html || test $$? -eq 1
	@echo "== the page of this run: .ftgate/demo/ftgate.html"

EXAMPLES := scenario1_overhead scenario2_shared_set scenario3_sharded_writers granian mod_wsgi trading_pipeline own_executors

# Contracts alone, on the machine that recorded as on any other: servers scatter too much for stored figures, and are never
# unchanged, so that pairs with the commit of the recordings take four minutes a test.
examples: setup ## the contracts of every example (10 minutes)
	$(PY) -m pytest --ftgate --ftgate-baselines .ftgate/none --ftgate-test-time 2m $(EXAMPLES:%=examples/%)

# Not into baselines/ itself: without its files the tree would be an edited one, whose recordings are of no commit.
RECORDED := .ftgate/recordings
MEASURED := .ftgate/examples.json
recordings: setup ## baselines/ and the tables of the examples anew, from a clean commit; KEEP=1 keeps what is there, of other machines (an hour)
	@test -z "$$(git status --porcelain -uno)" || { echo "commit first: no commit has what is edited" >&2; exit 1; }
	@mkdir -p .ftgate && rm -rf $(MEASURED) $(RECORDED) $(if $(KEEP),&& cp -r baselines $(RECORDED)); status=0; \
	$(PY) -m pytest --ftgate-update=new -o ftgate_baselines=$(RECORDED) --ftgate-test-time 5m \
	  -o ftgate_launches=3 --ftgate-report json:$(MEASURED) $(EXAMPLES:%=examples/%) || status=$$?; \
	test -d $(RECORDED) && cp baselines/README.md $(RECORDED) && rm -rf baselines && mv $(RECORDED) baselines && $(PY) benchmarks/examples/tables.py $(MEASURED) && exit $$status

adopt: setup ## adopt five published projects from their source distributions, and write docs/appendix/adopted.md (40 minutes)
	$(PY) benchmarks/adopt/adopt.py --log docs/appendix/adopted.md

tutorial: setup ## the commands of docs/tutorial.md, compared with what the page shows (5 minutes)
	$(PY) -m pytest tests/physical/test_tutorial.py --long

docs: $(VENV)/.ready ## the site of the manual: .ftgate/docs/index.html
	$(PY) -m sphinx --quiet --fail-on-warning --keep-going -c docs -d .ftgate/doctrees . .ftgate/docs

# Most of the time a test waits, for a process to start or to end: two tests a core keep the machine busy.
PARALLEL := -n $$($(PY) -c 'import os; print(min(8, 2 * (os.cpu_count() or 1)))') --dist loadfile
# In the order of tests/conftest.py: xdist's own begins with the files of many tests, and the longest have one. Since 3.8.
ORDERED := $(PARALLEL) --no-loadscope-reorder

# What fails beside other tests is tried again by itself, and both outcomes are printed: it fails if it fails alone, too.
ALONE := --last-failed --last-failed-no-failures none

test: setup lint ## lint, check types, run every test: what measures alone, after all others
	@status=0; \
	$(PY) -m pytest tests --ignore tests/physical $(ORDERED) || \
	  { echo "== again, alone"; $(PY) -m pytest tests --ignore tests/physical $(ALONE); } || status=$$?; \
	$(PY) -m pytest tests/physical || status=$$?; \
	exit $$status

# Of the controller's own Python depend the wings that read the workload's source, speak with pytest and write files; the
# measured processes run on the targets whatever it is, so runner/, measure/, run/, targets/ and faults/ have no second run.
NEWEST := .ftgate/newest
CONTROLLER := declare judge stats store report commands plugin test_architecture.py test_docs.py test_features.py \
  test_packaging.py test_text.py test_typing.py
.PHONY: $(NEWEST)
$(NEWEST): setup
	@for python in python3.15 python3.14 python3.13 python3.12 python3; do \
	  if $$python -c '' 2> /dev/null; then break; fi; \
	done; \
	echo "the controller is $$($$python -VV)"; \
	$(VENV)/bin/uv venv --quiet --no-project --clear --python $$(command -v $$python) $(NEWEST)
	$(VENV)/bin/uv pip sync --quiet --require-hashes --python $(NEWEST)/bin/python requirements.txt
	$(VENV)/bin/uv pip install --quiet --no-deps --no-build-isolation --python $(NEWEST)/bin/python --editable .

newest: $(NEWEST) ## the tests of the controller's wings, with the newest Python on PATH as the controller
	$(NEWEST)/bin/python -m pytest $(CONTROLLER:%=tests/%) $(ORDERED) || \
	  { echo "== again, alone"; $(NEWEST)/bin/python -m pytest $(CONTROLLER:%=tests/%) $(ALONE); }

# What decides verdicts, and the tests that run it in their own process.
FILES := $(addprefix src/pytest_ftgate/,judge/*.py store/update.py measure/time_round.py measure/memory_round.py \
  measure/watch/memory.py)
BY := $(addprefix tests/,judge store measure/test_interleaved.py measure/test_memory.py measure/test_budget.py \
  measure/test_capacity.py measure/test_conditions.py test_text.py)
mutants: $(NEWEST) ## change one operator of FILES at a time, and list what no test (BY="tests/judge") notices (hours)
	$(NEWEST)/bin/python tests/support/mutants.py $(FILES) -- $(BY)

faults: setup ## every fault, also those that take long: signals, full disks, hostile files, hangs
	$(PY) -m pytest tests/faults --long

FUZZ := --inputs 1000000
fuzz: $(VENV)/.ready ## a million hostile files, by a coverage-guided fuzzer (FUZZ="--seconds 60" for fewer)
	$(VENV)/bin/uv pip install --quiet --require-hashes --python $(PY) --requirement tests/faults/fuzz.txt
	$(PY) tests/faults/fuzz.py $(FUZZ)

lint: $(VENV)/.ready ## ruff and mypy
	$(PY) -m ruff check .
	$(PY) -m mypy

smoke: setup ## the wheel alone, in a clean environment of each Python that the classifiers name
	$(PY) .ci/smoke.py

LOWEST := .ftgate/lowest
lowest: setup ## the fast tests with the lowest versions that pyproject.toml allows
	$(VENV)/bin/uv venv --quiet --no-project --clear --python $(PY) $(LOWEST)
	$(VENV)/bin/uv pip install --quiet --resolution lowest-direct --only-binary :all: --python $(LOWEST)/bin/python \
	  --group dev --editable .
	$(LOWEST)/bin/python -m pytest tests --ignore tests/physical $(PARALLEL)

version: $(VENV)/.ready ## name the next release (VERSION=0.1.0), or what follows it (VERSION=0.2.0.dev0)
	$(PY) .ci/release.py --name $(VERSION)

release: setup ## build what is published into dist/, and check all of it; nothing is uploaded
	$(PY) .ci/release.py

requirements: $(VENV)/.ready ## resolve the pinned requirements anew
	$(VENV)/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --all-extras --group dev --custom-compile-command "make requirements" \
	  --output-file requirements.txt pyproject.toml
	$(VENV)/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --constraint requirements.txt --custom-compile-command "make requirements" \
	  --output-file tests/plugin/beside.txt pyproject.toml tests/plugin/beside.in
	$(VENV)/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --group fuzz --custom-compile-command "make requirements" \
	  --output-file tests/faults/fuzz.txt

clean: ## remove .venv and what tests leave
	rm -rf $(VENV) $(BOOTSTRAP) .ftgate .mypy_cache .pytest_cache .ruff_cache

# The interpreters are looked for until both are there; without them the tests go on and say what is missing. Where uv
# cannot download any, but the mirror of a distribution can be reached, they are built into the folder where we look.
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/pytest-ftgate/pythons
$(VENV)/.pythons: $(VENV)/.ready
	@doctor() { $(VENV)/bin/ftgate doctor --strict > $@.txt; }; \
	installed() { UV_PYTHON_INSTALL_DIR="$(CACHE)" $(VENV)/bin/uv python install --no-bin 3.14 3.14t; }; \
	if doctor || { installed && doctor; } || { .ci/build-pythons "$(CACHE)" && doctor; }; then touch $@; \
	else cat $@.txt; fi

# The editable install needs no second resolution and no download: its build tools are pinned with the rest.
$(VENV)/.ready: requirements.txt pyproject.toml | $(VENV)/bin/uv
	$(VENV)/bin/uv pip sync --quiet --require-hashes --python $(PY) requirements.txt
	$(VENV)/bin/uv pip install --quiet --no-deps --no-build-isolation --python $(PY) --editable .
	@touch $@

# uv makes .venv where there is one; else a python3 of 3.11 or newer; else an older python3 gets uv, and uv a Python.
$(VENV)/bin/uv:
	@rm -rf $(VENV) $(BOOTSTRAP); \
	pinned_uv() { sed -n '/^uv==/,/[^\\]$$/p' requirements.txt > "$$1/uv.txt"; \
	  "$$1/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$$1/uv.txt"; }; \
	suits() { command -v "$$1" > /dev/null && "$$1" -c "import sys, ensurepip, venv; sys.exit(sys.version_info < ($$2))" 2> /dev/null; }; \
	if uv --version > /dev/null 2>&1; then \
	  echo "making $(VENV) with uv"; \
	  uv venv --quiet --no-project --python '>=3.11' $(VENV); \
	  sed -n '/^uv==/,/[^\\]$$/p' requirements.txt > $(VENV)/uv.txt; \
	  uv pip install --quiet --require-hashes --python $(PY) -r $(VENV)/uv.txt; \
	  exit; \
	fi; \
	for python in python3 python3.14 python3.13 python3.12 python3.11 /usr/bin/python3; do \
	  if suits $$python '3, 11'; then \
	    echo "making $(VENV) with $$python"; \
	    $$python -m venv $(VENV); pinned_uv $(VENV); \
	    exit; \
	  fi; \
	done; \
	if suits python3 '3, 8'; then \
	  echo "python3 is older than 3.11: getting uv, and a Python by it"; \
	  python3 -m venv $(BOOTSTRAP); pinned_uv $(BOOTSTRAP); \
	  $(BOOTSTRAP)/bin/uv venv --quiet --no-project --python '>=3.11' $(VENV); \
	  $(BOOTSTRAP)/bin/uv pip install --quiet --require-hashes --python $(PY) -r $(BOOTSTRAP)/uv.txt; \
	  exit; \
	fi; \
	echo "no uv and no python3 with venv and ensurepip: install uv, or Python 3.11 or newer (on Debian: apt install python3-venv)" >&2; \
	exit 1
