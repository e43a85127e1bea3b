# Every target does its own set-up: on a fresh machine `make demo` or `make test` is all it takes.
# `make test PYTHON=python3.12` uses another interpreter (remove .venv first, if there is one).

PYTHON ?= python3
VENV := $(CURDIR)/.venv
PY := $(VENV)/bin/python
WORKERS ?= 2
PYTEST := $(VENV)/bin/pytest -n $(WORKERS) --dist worksteal --durations=25 --durations-min=2
# Beside the newest Triton, which the extra `gpu` brings: the oldest that is supported.
OLDEST_TRITON := 3.6

# Python keeps what it compiled of each file, whatever an image says: the tests start a hundred processes that
# import the package, which takes 0.8 s and 1.9 without; and each worker of pytest compiles all tests, in 25 s.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test all slow guard peers gpu lint format types contracts wheel docs bench bench-all clean

demo: $(VENV)/.with-demo
	$(PY) -m lamina demo

test: $(VENV)/.with-dev
	$(PYTEST)

# Every generated test, those that a day's sample leaves out too.
all: $(VENV)/.with-dev
	$(PYTEST) --all

slow: $(VENV)/.with-dev $(VENV)/.with-gpu
	$(PYTEST) -m slow -rP --hypothesis-profile=thorough
	$(PYTEST) --all --require-passed tests/gpu/test_device_records.py
	LAMINA_GUARD=1 $(PYTEST) $(GUARDED) tests/jit tests/runtime
	LAMINA_GUARD=2 $(PYTEST) $(GUARDED) tests/jit tests/runtime

# Every array beside a page that may not be touched, before it and behind it: a part of the tests.
GUARDED := tests/runtime/test_native.py tests/jit/test_training.py tests/jit/test_differentiable.py
guard: $(VENV)/.with-dev
	LAMINA_GUARD=1 $(PYTEST) $(GUARDED)
	LAMINA_GUARD=2 $(PYTEST) $(GUARDED)

# Not in parallel: two processes that each hold the peer take longer to load it than the tests take.
peers: $(VENV)/.with-dev $(VENV)/.with-peer-torch
	$(VENV)/bin/pytest --require-passed tests/peers

# Compiles Triton text to machine code, runs it in Triton's interpreter, and the driver's side on a fake driver
# where a C compiler is; no GPU is there or needed.  The oldest Triton differs in what it compiles to and how it
# interprets: the tests of that are run with it as well.
gpu: $(VENV)/.with-dev $(VENV)/.with-gpu $(VENV)/.with-triton-$(OLDEST_TRITON)
	$(PYTEST) --require-passed tests/gpu
	PYTHONPATH=$(VENV)/triton-$(OLDEST_TRITON) $(PYTEST) --require-passed \
	    tests/gpu/test_triton_compiler.py tests/gpu/test_triton_families.py tests/gpu/test_cuda_compiled.py \
	    tests/gpu/test_cuda_kernels.py tests/gpu/test_cuda_model.py

lint: $(VENV)/.with-dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

format: $(VENV)/.with-dev
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

# mypy and import-linter can't follow an editable install whose package is the root: they read a copy.
types: $(VENV)/.with-dev
	$(PY) tests/house/package_tree.py build/types
	cd build/types && $(VENV)/bin/mypy --config-file $(CURDIR)/pyproject.toml -p lamina

contracts: $(VENV)/.with-dev
	$(PY) tests/house/package_tree.py build/contracts
	cd build/contracts && PYTHONPATH=. $(VENV)/bin/lint-imports --config $(CURDIR)/pyproject.toml

wheel: $(VENV)/.with-dev
	$(PY) tests/house/wheel_check.py

# The site, into build/site: fails for a link that leads nowhere, and for a page that no menu has.
docs: $(VENV)/.with-dev $(VENV)/.with-docs
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet
	@echo "build/site/index.html"

# Overhead needs torch alone; the others run every peer that the extra brings. `--write` keeps the tables.
bench: $(VENV)/.with-dev $(VENV)/.with-peer-torch
	$(PY) benchmarks/overhead.py

bench-all: $(VENV)/.with-dev $(VENV)/.with-peers
	for name in overhead eager large kernels compile models jit threads soundness; do $(PY) benchmarks/$$name.py --write; done

clean:
	rm -rf $(VENV) build dist lamina.egg-info

# A stamp stands for an installed set of extras; it is renewed when what is installed may have changed.
$(VENV)/.with-%: pyproject.toml ir/version.py | $(VENV)/.made
	@echo "installing lamina[$*] into $(VENV); the first time takes about a minute"
	@$(PY) -m pip install --quiet --disable-pip-version-check --editable '$(CURDIR)[$*]'
	@touch $@

# Not into the environment, where only one version can be, but beside it.
$(VENV)/.with-triton-%: | $(VENV)/.made
	@echo "installing triton $* into $(VENV)/triton-$*"
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(VENV)/triton-$* 'triton==$*.*'
	@touch $@

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("Lamina needs Python 3.11 or newer; " \
	    "$(PYTHON) is %d.%d. Name another one: make PYTHON=python3.12" % v[:2])'
	@$(PYTHON) -m venv --clear $(VENV)
	@touch $@

.PRECIOUS: $(VENV)/.with-%
