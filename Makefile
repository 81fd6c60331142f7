# The targets set themselves up: a virtual environment, pinned packages, the small CPU build of torch.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
INSTALLED = $(VENV)/installed-$(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)

CHROMIUM ?= /usr/bin/chromium
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile -rs

.PHONY: demo test check rest stress lint report figures page page-tools page-test docs setup clean

demo: setup
	$(BIN)/untrimmed demo

# What a change normally needs: under five minutes on two cores.
test: setup lint
	$(PYTEST) -m "not slow and not check"

# All of CI: under twenty minutes.
check: page-tools test rest

# What `make check` runs beyond `make test`, with arguments and shapes checked against their annotations.
rest: setup page-test
	UNTRIMMED_TYPECHECK=1 $(PYTEST) -m "check and not slow"
	UNTRIMMED_TYPECHECK=1 $(PYTEST) -m "not check and not slow" tests/nn tests/losses tests/scores tests/moments

# Everything, with the long tests.
stress: setup lint page-test
	UNTRIMMED_TYPECHECK=1 $(PYTEST)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Long functions and files, and lines by package; never fails.
report:
	$(PYTHON) tests/line_counts.py

# Draws the diagrams of docs/architecture.md.
figures: setup
	$(BIN)/python docs/site/pictures.py

# Builds the page from web/ into the package, with the types, bounds and defaults of the service.
page: setup
	$(BIN)/python web/service.py
	cd web && npm ci --no-audit --no-fund && npm run check && npm run build

page-tools:
	@test -n "$(UNTRIMMED_NO_BROWSER)" || test -x $(CHROMIUM) || \
	  { echo "no Chromium at $(CHROMIUM): install it, or set UNTRIMMED_NO_BROWSER=1 to leave the page untested"; exit 1; }
	@test -n "$(UNTRIMMED_NO_BROWSER)" || command -v npm > /dev/null || \
	  { echo "no npm: install Node 20, or set UNTRIMMED_NO_BROWSER=1 to leave the page untested"; exit 1; }

page-test: page-tools
	if command -v npm > /dev/null; then cd web && npm ci --no-audit --no-fund && npm run check && npm test; fi

docs: setup
	$(BIN)/python docs/site/make.py

setup: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@echo "installing the tested versions into $(VENV): a few minutes"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade -c constraints.txt pip
	$(BIN)/python -m pip install --quiet -c constraints.txt --editable ".[all]" --group dev
	rm -f $(VENV)/installed-*
	touch $@

clean:
	rm -rf $(VENV) demo build
