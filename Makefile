# The commands of this checkout.  Each one does all the set-up it needs, in .venv, and in .venv-newest
# where there is a newer Python; downloads stay in the caches of pip (PIP_CACHE_DIR) and Maven and in
# XDG_CACHE_HOME/omidpy, outside the checkout, so that a second run is quick.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
STAMP := .venv/.complete
DEMO_STAMP := .venv/.demo
DEMO_OUTPUT ?= demo-output
PYTEST_ARGS ?=
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/omidpy
# Much of the time of the tests is spent waiting for servers, so three workers share them, file by
# file (tests/machines/shares.py), in the order that pyproject.toml gives.  One that dies is not
# replaced: pytest-xdist would hand its finished files out again, and then wait for ever.
SHARED_OUT := -n 3 --dist loadfile --no-loadscope-reorder --max-worker-restart 0
ON_NO_SERVER := not hbase and not java and not spark and not integration and not nightly
NIGHTLY_TIMEOUT_S := 14400
# `make quick` takes 90 s at most: these, some to find the tests, and some for the last one to end.
QUICK_S := 65
SEEDS ?= 100
FIRST ?= 0
ALONE ?=
FOCUS ?=
SHRINK ?=
JOBS ?=
RECORD ?=

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export MYPY_CACHE_DIR := $(CACHE)/mypy
# Python starts in half the time where it may keep what it has compiled, and tests start thousands.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup lint test quick simulate nightly demo bench docs dist changelog release clean

help:  ## say what there is
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18

# What is compiled shadows its source, so a change of that source installs again.
COMPILED := $(foreach module,tso/core/engine omidpy/base/rows/simple omidpy/wire/protobuf $(addprefix omidpy/storage/hbase/native/,cellblock wire/answers),$(module).py $(module).pxd)
$(STAMP): pyproject.toml .ci/setup $(wildcard setup.py $(COMPILED))
	@sh .ci/setup $(STAMP) && touch $(DEMO_STAMP)

# The demo takes less: whoever only wants to see it waits for no tool, no jar and no server.
$(DEMO_STAMP): pyproject.toml .ci/setup $(wildcard setup.py $(COMPILED))
	@sh .ci/setup --demo $(DEMO_STAMP)

setup: $(STAMP)  ## make .venv with everything the other commands need
	@sh .ci/setup --java

lint: setup  ## format check, lint and types
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --no-error-summary

test: lint  ## lint, then every test that takes minutes at most, a real HBase among them
	@sh .ci/test-newest
	@$(BIN)/python -m pytest $(SHARED_OUT) $(PYTEST_ARGS)

quick: $(STAMP)  ## the unit, property and contract tests that the last change touches, on no server
	@$(BIN)/ruff check --quiet .
	@touched=$$($(BIN)/python -m tests.machines.touched); \
	  if [ -z "$$touched" ]; then echo "quick: no quick test imports what was changed"; else \
	  $(BIN)/python -m pytest -q -n 3 -p tests.machines.in_time --in-time $(QUICK_S) -m "$(ON_NO_SERVER)" $(PYTEST_ARGS) $$touched; fi

simulate: setup  ## oracles, clients and others in one process; SEEDS=n (0: until ^C), FIRST=m, FOCUS=alone, SHRINK=1
	@$(BIN)/python -m tests.machines.simulator --seeds $(SEEDS) --first $(FIRST) \
	  $(if $(ALONE),--focus alone,$(if $(FOCUS),--focus $(FOCUS))) $(if $(SHRINK),--shrink) \
	  $(if $(JOBS),--jobs $(JOBS)) $(if $(RECORD),--record $(RECORD))

nightly: setup  ## the tests that take hours: a thousand kills, thousands of seeds
	@sh .ci/test-newest --all
	@OMIDPY_HYPOTHESIS_PROFILE=nightly $(BIN)/python -m pytest -m "nightly or not nightly" \
	  --timeout=$(NIGHTLY_TIMEOUT_S) -o faulthandler_timeout=0 $(PYTEST_ARGS)

demo: $(DEMO_STAMP)  ## load flights while loaders are killed, compact, check; DEMO_ROWS=all for every flight
	@$(BIN)/python -m bench.demo --output $(DEMO_OUTPUT)

bench: setup  ## measure, and write bench/results/<date>-<commit>.json
	@$(BIN)/python -m bench.run

# All pages are read each time (-E): of those that are not, the search would forget the index entries.
docs: setup  ## build the documentation into site/; a broken link fails
	@$(BIN)/python -m sphinx -q -W -E --keep-going -b html -d build/doctrees docs site

dist: setup  ## build wheel and source distribution, and try each on every Python; PYTHON=path for one
	@$(BIN)/python -m release.dist $(if $(PYTHON),--python $(PYTHON))

changelog: $(STAMP)  ## put the fragments of docs/changes into their chapter of CHANGELOG.md
	@$(BIN)/python -m release.changelog

release: setup  ## check, build, try, describe and tag a release; pushes nothing
	@$(BIN)/python -m release.cut $(if $(PYTHON),--python $(PYTHON))

clean:  ## remove what builds and runs left; .venv stays
	rm -rf build dist site *.egg-info $(DEMO_OUTPUT) .pytest_cache .mypy_cache .ruff_cache .hypothesis \
	  .benchmarks spark-warehouse metastore_db derby.log tso/core/*.so tso/core/engine.c omidpy/wire/*.so omidpy/storage/hbase/native/*.so omidpy/storage/hbase/native/wire/*.so \
	  $(STAMP) $(DEMO_STAMP) .venv-newest/.complete
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +
