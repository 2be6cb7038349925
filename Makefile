# Two commands matter: `make demo` and `make test`. Both set everything up in .venv first.
PYTHON ?= $(firstword $(foreach p,python3.13 python3.12 python3.11 python3,$(shell $(p) -c 'import sys; (3,11) <= sys.version_info[:2] <= (3,13) and print("$(p)")' 2>/dev/null)))
BIN := .venv/bin

.PHONY: setup demo test check bench faults lock clean

setup: .venv/ready

.venv/ready: requirements.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "Reveal needs Python 3.11, 3.12 or 3.13; name one with: make PYTHON=/path/to/python3.12 ..."; exit 1; }
	@echo "setting up .venv with $$($(PYTHON) --version) (some 300 MB of packages on the first run)"
	@$(PYTHON) -m venv .venv || { echo "python has no venv module: on Debian and Ubuntu, apt install python3-venv"; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup
	@$(BIN)/reveal demo $(if $(KEEP),--keep)

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# A ClickHouse server for tests, apart from the packages, as it clashes with one. Where it cannot be fetched, they say why.
.venv/server: tests/clickhouse_server.txt | setup
	@echo "fetching a ClickHouse server for the tests (180 MB, unpacked 860, once)"
	@rm -rf $@ $@.new
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: \
		--target $@.new -r $< 2> $@.log && mv $@.new $@ && touch $@ || cat $@.log

# What needs no services runs on all cores; what waits for services three files at a time; what is timed, alone.
test: check .venv/server
	$(BIN)/pytest --numprocesses auto --dist worksteal tests/unit tests/simulated
	$(BIN)/pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder tests/landing tests/integration
	$(BIN)/pytest tests/timed

bench: setup
	$(BIN)/python -m tests.benchmarks

# Real faults on this machine, as root: make faults [JSON=file] [ONLY=name,...] [QUIET=minutes]
faults: setup
	@$(BIN)/python -m tests.laboratory $(if $(JSON),--json $(JSON)) $(if $(ONLY),--only $(ONLY)) $(if $(QUIET),--quiet-minutes $(QUIET))

# Pins every package with its hashes, for every supported Python.
lock:
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 --generate-hashes --no-annotate \
		--no-emit-index-url --custom-compile-command "make lock" --quiet --output-file requirements.txt

clean:
	rm -rf .venv .reveal *.egg-info build dist
