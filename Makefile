# `make demo`, `make test` and `make docs` set themselves up: a virtual environment, pinned packages, the small CPU build of torch.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
INSTALLED = $(VENV)/installed-$(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)

.PHONY: demo test stress lint docs setup clean

demo: setup
	$(BIN)/untrimmed demo

test: setup lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" -n 2 --dist loadfile -rs

stress: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "slow or not slow" -n 2 --dist loadfile

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

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
