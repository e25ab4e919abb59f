# `make train` and `make test` do all set-up on a fresh machine: a virtual environment in .venv, the package, its tools.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Kept, what Python compiles: else each process of the tests would compile all it imports again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: train dev test test-all test-extras lint types bench bench-peers constraints try-plain try-newest try-lowest \
        try-debian clean

train: $(VENV)/installed  ## train the default agent: CartPole
	$(BIN)/scramjet train

PYTEST := $(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal --durations 10

dev: $(VENV)/installed-dev  ## set up what the tests, lint and the type checker need, and run nothing

test: $(VENV)/installed-dev  ## the core of the tests: what a change to scramjet itself can break
	$(PYTEST)

test-all: test $(VENV)/installed-all  ## the core, then the rest: other libraries, long training, every combination
	$(PYTEST) --rest

test-extras: $(VENV)/installed-dev  ## install every extra into an environment of its own and run its line: gigabytes
	$(BIN)/python -m pytest -n 0 --rest --extras tests/test_wheel.py

lint: $(VENV)/installed-dev  ## formatting and lint
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/installed-dev  ## the type checker
	$(BIN)/mypy

bench: $(VENV)/installed  ## speed on this machine
	$(BIN)/scramjet bench

bench-peers: $(VENV)/installed  ## speed beside other libraries, each installed into .peers: most of an hour
	$(BIN)/python benchmarks/compare_peers.py

$(VENV)/made:  # not its Python, which is there before the rest of it is
	@command -v $(PYTHON) > /dev/null || \
		{ echo "there is no $(PYTHON); name your Python with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "scramjet needs Python 3.11 or newer; choose one with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	$(PYTHON) -m venv --clear $(VENV)
	touch $@

$(VENV)/installed: $(VENV)/made pyproject.toml constraints.txt tools/install.py
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

# Each on a clone of the last commit, from the plain index, without this machine's settings of pip: gigabytes.
try-plain:  ## make train and make test with the Python in PYTHON
	$(PYTHON) tools/try_install.py plain

try-newest:  ## the core of the tests with the newest version of every dependency
	$(PYTHON) tools/try_install.py newest

try-lowest:  ## six worlds train with the lowest versions that pyproject.toml names
	$(PYTHON) tools/try_install.py lowest

try-debian:  ## make train and make test in a minimal Debian, as an ordinary user; needs root and debootstrap
	$(PYTHON) tools/try_install.py debian

clean:  ## forget the virtual environment
	rm -rf $(VENV)
