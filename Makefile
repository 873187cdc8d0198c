# make demo        the environment, then SWAMP beside IMP on the digits, a table, a picture and a report
# make test        the environment, then linters, types and the suite
# make test-slow   the long fault and scale tests
# make test-gpu    the tests that need a CUDA device
# make docs        the documentation as a site, in site/; broken links are errors
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
DEMO := runs/demo
# equal bytes are promised where a number of threads is fixed, and no card is in the way; the tests start many processes, which are to find
# compiled files wherever the environment forbids Python to write them
ON_CPU := OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES= PYTHONDONTWRITEBYTECODE=

.PHONY: demo test test-slow test-gpu docs lint clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev,docs]'
	touch $@

demo: $(STAMP)
	$(BIN)/swamp run digits --out $(DEMO)/swamp --cache $(DEMO)/cache
	$(BIN)/swamp run digits --method imp --out $(DEMO)/imp --cache $(DEMO)/cache
	$(BIN)/swamp compare $(DEMO)/imp $(DEMO)/swamp --plot $(DEMO)/error.png
	$(BIN)/swamp report $(DEMO)/imp $(DEMO)/swamp --out $(DEMO)/report.html

lint: $(STAMP)
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	MYPY_NUM_WORKERS=2 $(BIN)/mypy

# three workers for two cores, since a test that waits for a process leaves its core idle
test: lint
	$(ON_CPU) $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder --durations=10 -m "not slow"

test-slow: $(STAMP)
	$(ON_CPU) $(BIN)/python -m pytest -n 2 -m slow

test-gpu: $(STAMP)
	$(BIN)/python -m pytest -m gpu

docs: $(STAMP)
	$(BIN)/zensical build --strict --clean

clean:
	rm -rf .venv dist build site .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis
