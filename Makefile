# The two commands: `make search` shows what Stockade does, `make test` checks it.
# Both set up .venv first, and again only when pyproject.toml or constraints.txt changed. After that nothing is downloaded.

PYTHON ?= python3
PYTEST_ARGS ?=

VENV := .venv
RUN := $(VENV)/bin/python
RAY := .venv-ray
CUDA := .venv-cuda
CUDA_TESTS := tests/cuda tests/integrations/test_jax.py
OLD_GYMNASIUM_TESTS := tests/contract tests/cage2/test_interface.py tests/cage2/test_autoreset.py

.DEFAULT_GOAL := help
.PHONY: help search test test-slow test-docs test-ray test-cuda test-release test-oldest test-newest
.PHONY: chaos browser docs build pictures lint format clean

help: ## this list
	@sed -n 's/^\([a-z -]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

search: $(VENV)/installed-run ## set up and run a small workflow search: about a minute
	$(VENV)/bin/stockade search --max-steps 30 --total-episodes 150000
	@$(VENV)/bin/stockade report "$$(dirname "$$(ls -t runs/*/summary.json | head -1)")"

test: lint $(if $(strip $(PYTEST_ARGS)),,$(RAY)/installed $(CUDA)/installed) ## set up and run every check: ruff, mypy, pytest without the slow tests, the essential ones of Ray, compiling for GPUs, JAX
	$(RUN) -m pytest -n auto --dist worksteal $(PYTEST_ARGS)
	$(if $(strip $(PYTEST_ARGS)),@echo 'Only what PYTEST_ARGS says; `make test-ray` for the tests of Ray and `make test-cuda` for GPUs and JAX.',\
	    $(RAY)/bin/python -m pytest -m "essential and not slow" tests/ray)
	$(if $(strip $(PYTEST_ARGS)),,$(CUDA)/bin/python -m pytest -n auto --dist worksteal $(CUDA_TESTS))

test-slow: $(VENV)/installed-dev $(RAY)/installed ## the slow tests only
	$(RUN) -m pytest -m slow $(PYTEST_ARGS)
	$(RAY)/bin/python -m pytest -m slow tests/ray

test-docs: $(VENV)/installed-dev $(VENV)/installed-docs ## build the site, open it in a browser, run the tutorials
	$(RUN) -m pytest -m docs $(PYTEST_ARGS)

# RLlib pins an older Gymnasium, so Ray has an environment of its own, where the oldest Gymnasium is tested too. Tests of
# Ray come one at a time, for they share one Ray.
test-ray: $(RAY)/installed ## all tests that need Ray, and those of vector environments with the Gymnasium that RLlib pins
	$(RAY)/bin/python -m pytest tests/ray $(PYTEST_ARGS)
	$(RAY)/bin/python -m pytest -n auto --dist worksteal $(OLD_GYMNASIUM_TESTS) $(PYTEST_ARGS)

# Neither a GPU nor its driver is needed: the toolkit's packages compile for devices that are not there. JAX runs on the
# CPU. What else there is of a GPU runs in Numba's simulator, in .venv with all other tests.
test-cuda: $(CUDA)/installed ## compile the kernels for three generations of GPUs; the tests of JAX
	$(CUDA)/bin/python -m pytest -n auto --dist worksteal $(CUDA_TESTS) $(PYTEST_ARGS)

chaos: $(VENV)/installed-dev ## random faults for MINUTES=10, from a SEED; ONLY= some kinds of scenarios: docs/about/reliability.md
	$(RUN) -m tests.chaos --minutes $(or $(MINUTES),10) --seed "$(SEED)" --only "$(ONLY)"

test-release: $(VENV)/installed-dev ## build, install the wheel into an empty environment, use it there: part of test-slow
	$(RUN) -m pytest -m slow tests/release $(PYTEST_ARGS)

test-oldest test-newest: test-%: .venv-%/installed ## with the oldest or newest dependencies that pyproject.toml allows
	.venv-$*/bin/python -m pytest -n auto --dist worksteal $(PYTEST_ARGS)

# The pages are tested in a real browser. Without one, their tests are skipped, and say so.
browser: ## install Chromium for the tests of pages, where there is none: Debian or Ubuntu, as root
	@if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then echo "Chromium is there."; \
	elif command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium chromium-driver; } \
	        >/dev/null 2>&1 || echo "WARNING: Chromium could not be installed: the pages are not tested." >&2; \
	else echo "WARNING: no Chromium, and no way to install it here: the pages are not tested." >&2; fi

docs: $(VENV)/installed-docs ## build the documentation site into site/; DOCS_EXECUTE=0 leaves out running the tutorials
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict --quiet
	@echo "Open site/index.html."

build: $(VENV)/installed-dev ## source distribution and wheel, into dist/
	$(RUN) -m build

pictures: $(VENV)/installed-dev ## draw all pictures of README and docs; those of README need Chromium and two minutes
	$(RUN) benchmarks/pages.py
	$(RUN) benchmarks/readme_pictures.py

lint: $(VENV)/installed-dev ## ruff and mypy
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check
	$(RUN) -m mypy stockade

format: $(VENV)/installed-dev ## let ruff sort imports, repair and format
	$(RUN) -m ruff check --fix
	$(RUN) -m ruff format

clean: ## remove .venv, caches and builds
	rm -rf $(VENV) $(RAY) $(CUDA) .venv-oldest .venv-newest build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# ---------------------------------------------------------------------------------------------------------------- set-up
$(VENV)/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "Stockade needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1)." \
	           "Name another: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed-run: pyproject.toml constraints.txt | $(VENV)/bin/pip
	@echo "Setting up $(VENV): once, a minute or so."
	$(RUN) -m pip install --disable-pip-version-check -q -c constraints.txt -e '.[train,plots]'
	@touch $@

$(VENV)/installed-dev: pyproject.toml constraints.txt | $(VENV)/bin/pip
	@echo "Setting up $(VENV) with everything for development: once, a few minutes."
	$(RUN) -m pip install --disable-pip-version-check -q -c constraints.txt -e '.[train,sb3,plots,dev]'
	@touch $@ $(VENV)/installed-run

$(VENV)/installed-docs: pyproject.toml constraints.txt | $(VENV)/bin/pip
	@echo "Setting up $(VENV) with what builds the documentation: once, a minute or so."
	$(RUN) -m pip install --disable-pip-version-check -q -c constraints.txt -e '.[train,sb3,plots,docs]'
	@touch $@ $(VENV)/installed-run

$(RAY)/installed: pyproject.toml constraints.txt
	@echo "Setting up $(RAY), with Ray and the Gymnasium that its RLlib pins: once, a few minutes."
	$(PYTHON) -m venv $(RAY)
	grep -v '^gymnasium' constraints.txt > $(RAY)/constraints.txt
	$(RAY)/bin/python -m pip install --disable-pip-version-check -q -c $(RAY)/constraints.txt -e '.[train,ray,sb3,dev]'
	@touch $@

$(CUDA)/installed: pyproject.toml constraints.txt
	@echo "Setting up $(CUDA), with Numba's CUDA target, the toolkit's compiler and JAX: once, a minute or so."
	$(PYTHON) -m venv $(CUDA)
	$(CUDA)/bin/python -m pip install --disable-pip-version-check -q -c constraints.txt -e '.[cuda,jax]' hypothesis psutil pytest pytest-xdist
	@touch $@

.venv-%/installed: pyproject.toml constraints.txt
	@echo "Setting up .venv-$*, with the $* dependencies: once, a few minutes."
	$(PYTHON) -m venv .venv-$*
	$(PYTHON) tests/release/dependencies.py $* > .venv-$*/constraints.txt
	.venv-$*/bin/python -m pip install --disable-pip-version-check -q -c .venv-$*/constraints.txt -e '.[train,sb3,plots,dev]'
	@touch $@
