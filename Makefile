# Everything from nothing but a Python: `make demo`, `make test`, `make lint`, `make docs`, `make release`. A second run is quick.
PYTHON ?= python3
JOBS ?= 2
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt
# A module is compiled to bytecode at its first import, not each of the many thousands at installation; so bytecode must be kept.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test slow thorough lint docs release clean

demo: $(VENV)/.installed-demo  ## schedule Inception-v3 on a CPU, a T4 and an A100
	$(BIN)/hetsched demo --report report.html

test: $(VENV)/.prepared  ## every test but the slow ones, the same every time
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

slow: $(VENV)/.installed-test  ## the tests that take many seconds each, in CI too with the few examples of a developer
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal --hypothesis-profile=dev -m slow

thorough: $(VENV)/.installed-test  ## hours of examples and order drawn anew; HETSCHED_THOROUGH_MINUTES=10 for a part, _SEED and _COUNT to repeat
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal --hypothesis-profile=thorough -o faulthandler_timeout=0 -m "hypothesis or thorough"

lint: $(VENV)/.installed-lint  ## style, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy hetsched tests/models/test_extension.py
	$(BIN)/lint-imports

docs: $(VENV)/.installed-docs  ## the documentation site, into docs/_build
	$(BIN)/python -m sphinx -W --keep-going --quiet --fresh-env docs docs/_build
	@echo "open docs/_build/index.html"

release: $(VENV)/.installed-release  ## the files for an index, into dist; the wheel runs the demo in an environment of its own
	rm -rf dist
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m build --quiet
	$(BIN)/twine check --strict dist/*
	@set -e; tried=$$(mktemp -d); trap 'rm -rf "$$tried"' EXIT; \
	echo "installing the wheel where nothing else is"; \
	$(PYTHON) -m venv "$$tried/venv"; \
	"$$tried/venv/bin/python" -m pip install --quiet --disable-pip-version-check --constraint constraints.txt "$$(echo dist/*.whl)[report]"; \
	cd "$$tried"; venv/bin/hetsched --version; venv/bin/hetsched demo --report report.html; test -s report.html
	@ls dist

clean:
	rm -rf dist docs/_build docs/_made $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("hetsched needs Python 3.11 or newer, but $(PYTHON) is %d.%d; say which to use: make PYTHON=python3.12" % sys.version_info[:2])'
	@echo "making $(VENV) with $$($(PYTHON) --version)"
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed-demo: pyproject.toml constraints.txt | $(VENV)/.made
	@echo "installing hetsched with what draws"
	$(INSTALL) --editable '.[report]'
	@touch $@

$(VENV)/.installed-test: pyproject.toml constraints.txt | $(VENV)/.made
	@echo "installing hetsched with torch and the test tools"
	$(INSTALL) --editable '.[torch,test]'
	@touch $@ $(VENV)/.installed-demo

$(VENV)/.prepared: $(VENV)/.installed-test
	@echo "compiling the kernels, once for all"
	$(BIN)/hetsched prepare --jobs $(JOBS)
	@touch $@

$(VENV)/.installed-lint: pyproject.toml constraints.txt | $(VENV)/.installed-test
	@echo "installing the linters"
	$(INSTALL) --editable '.[lint]'
	@touch $@

$(VENV)/.installed-release: pyproject.toml constraints.txt | $(VENV)/.made
	@echo "installing build and twine"
	$(INSTALL) --editable '.[release]'
	@touch $@

$(VENV)/.installed-docs: pyproject.toml constraints.txt | $(VENV)/.made
	@echo "installing hetsched with torch and Sphinx"
	$(INSTALL) --editable '.[torch,docs]'
	@touch $@
