# SPDX-License-Identifier: Apache-2.0
PYTHON ?= python3
ARGS ?=
# cpu: PyTorch's build without CUDA
TORCH ?=
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# One process a core and one more, each with one thread: tests compute little each, and some wait for programs that they started. Files stay
# whole, since what a file's tests share takes long to make, and come in the order of tests/conftest.py, the longest first. nproc would
# believe OMP_NUM_THREADS.
WORKERS ?= $(shell cores=$$(env -u OMP_NUM_THREADS nproc); echo $$((cores < 8 ? cores + 1 : 8)))
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
SOURCES = $(shell find kernels -name "*.cu" -o -name "*.cuh" -o -name "*.h" -o -name "*.cpp")

# nvcc as wheels where a GPU has no toolkit
EXTRAS = dev$(shell [ -e /proc/driver/nvidia/version ] && [ "$(TORCH)" != cpu ] && [ -z "$(CUDA_HOME)" ] && [ ! -e /usr/local/cuda/bin/nvcc ] && ! command -v nvcc >/dev/null && echo ,cuda)
PIP = $(BIN)/python -m pip install --disable-pip-version-check --no-compile
CPU_WHEELS = https://download.pytorch.org/whl/cpu

# so that ninja, which compiles kernels, is found without activating the environment
export PATH := $(CURDIR)/$(BIN):$(PATH)

.DEFAULT_GOAL := help
.PHONY: help train test test-all lint format figures site clean

help:  ## this list
	@echo "make TARGET [ARGS='...'] [PYTHON=python3.12]"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST)

train: $(STAMP)  ## train; ARGS go to nurec_lite.train, such as ARGS='data=kitti_raw data.root=PATH +opt=all'
	@$(BIN)/python -m nurec_lite.train $(ARGS)

test: $(STAMP)  ## run the tests but for slow ones, on all cores; ARGS go to pytest
	@$(PYTEST) -m 'not slow' $(ARGS)

test-all: $(STAMP)  ## run every test, as CI does
	@$(PYTEST) $(ARGS)

lint: $(STAMP)  ## ruff check, ruff format --check, clang-format, mypy
	@$(BIN)/ruff check --output-format concise .
	@$(BIN)/ruff format --check .
	@$(BIN)/clang-format --dry-run --Werror $(SOURCES)
	@$(BIN)/mypy

format: $(STAMP)  ## let ruff and clang-format rewrite what they can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .
	@$(BIN)/clang-format -i $(SOURCES)

site: $(STAMP)  ## build the documents as a site in build/site
	@$(PIP) -q -c constraints.txt -e '.[site]'
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -q

figures: $(STAMP)  ## write benchmarks/figures.csv and the figures of README.md and docs/ from benchmarks/results
	@$(BIN)/python scripts/figures.py

clean:  ## remove built files and caches (not .venv, not runs/)
	@rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +

# Once, and again when what is to be installed changes. The constraints settle every version in one pass. Python compiles a module when it
# first imports it: most of those installed never are. The index of torch's CPU wheels lacks the versions of other packages.
$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || { echo "make: creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "make: installing nurec_lite and its dependencies into $(VENV) (minutes the first time)"
	@if [ "$(TORCH)" = cpu ]; then $(PIP) --no-deps -c constraints.txt torch --index-url $(CPU_WHEELS); fi
	@$(PIP) -c constraints.txt -e '.[$(EXTRAS)]'
	@touch $@
