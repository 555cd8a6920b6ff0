# Everything is done inside .venv, which `make` builds by itself.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint format docs package clean

demo: $(VENV)/ready
	$(BIN)/geomatt demo

test: lint
	@sh scripts/install_browser.sh
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal
	@$(BIN)/python -c "import triton" 2>/dev/null || \
		echo "NOTE: Triton is not available on this system, so the tests of the GPU kernels were skipped."
	@sh scripts/install_browser.sh check || \
		echo "NOTE: There is no browser on this system, so the tests of the pages in a browser were skipped."

lint: $(VENV)/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@echo "The documentation is in site/index.html"

package: $(VENV)/ready  # make package PYTHONS="python3.12 python3.13" tries these too
	$(BIN)/python scripts/check_package.py $(PYTHONS)

$(VENV)/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" || \
		{ echo "geomatt needs Python 3.11 or newer: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt "setuptools" "torch"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation -e ".[dev]"
	@touch $@

clean:
	rm -rf $(VENV) build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
