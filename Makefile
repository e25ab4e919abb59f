# `make train` and `make test` do all set-up on a fresh machine: a virtual environment in .venv, the package, its tools.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: train test test-extras lint types bench bench-peers clean

train: $(VENV)/installed  ## train the default agent: CartPole
	$(BIN)/scramjet train

test: $(VENV)/installed-dev  ## run all tests
	$(BIN)/python -m pytest -n auto --dist worksteal --durations 15

test-extras: $(VENV)/installed-dev  ## install every extra into an environment of its own and run its line: gigabytes
	$(BIN)/python -m pytest -n 0 --extras tests/test_extras.py

lint: $(VENV)/installed-dev  ## formatting and lint
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/installed-dev  ## the type checker
	$(BIN)/mypy

bench: $(VENV)/installed  ## speed on this machine
	$(BIN)/scramjet bench

bench-peers: $(VENV)/installed  ## speed beside other libraries, each installed into .peers: most of an hour
	$(BIN)/python benchmarks/compare_peers.py

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "scramjet needs Python 3.11 or newer; choose one with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: $(BIN)/python pyproject.toml constraints.txt tools/install.py
	@echo "installing scramjet into $(VENV): a minute or two, once"
	$(BIN)/python tools/install.py
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(BIN)/python tools/install.py dev
	touch $@

# The originals of some worlds and other libraries are heavy and not everywhere to be had: what needs them is skipped.
$(VENV)/installed-all: $(VENV)/installed-dev
	$(BIN)/python tools/install.py dev -- parity others seen many kernels browser
	touch $@

constraints: $(VENV)/installed-dev  ## resolve constraints.txt anew; UPGRADE=1 takes the newest versions
	$(BIN)/python tools/constraints.py $(if $(UPGRADE),--upgrade)

clean:  ## forget the virtual environment
	rm -rf $(VENV)
