# make demo        the environment, then SWAMP beside IMP on the digits, a table, a picture and a report
# make test        the environment, then linters, types and the suite
# make test-slow   the long fault and scale tests
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
DEMO := runs/demo

.PHONY: demo test test-slow lint clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev]'
	touch $@

demo: $(STAMP)
	$(BIN)/swamp run digits --out $(DEMO)/swamp --cache $(DEMO)/cache
	$(BIN)/swamp run digits --method imp --out $(DEMO)/imp --cache $(DEMO)/cache
	$(BIN)/swamp compare $(DEMO)/imp $(DEMO)/swamp --plot $(DEMO)/error.png
	$(BIN)/swamp report $(DEMO)/imp $(DEMO)/swamp --out $(DEMO)/report.html

lint: $(STAMP)
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m "not slow"

test-slow: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m slow

clean:
	rm -rf .venv dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
