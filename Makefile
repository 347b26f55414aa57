# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
#
#   make run     set up what is missing, then run the federation        (ARGS="--rounds 3")
#               hospitals release their own policies too, for the selector; ARGS=--no-release: not
#   make test    set up what is missing, then run the tests; says at its end what did not run;
#               TESTS=node: one of lint, unit, protocol, node, launch alone
#   make setup   only set up: .venv, the wheels, the colcon build, and PyTorch, which `make run`
#               does without: run this first for a plan with `--learner-kind torch`
#   make nightly set up what is missing, then the slow tests that back claims (test/nightly), in
#               hours; NIGHTLY=test/nightly/test_mutants.py, or ARGS="-k pace": those alone;
#               ARGS="--save docs/results/mutants.json": keeps the figures of one file; alias: paper
#   make lint    check style, types, commit subjects and the site   make format   repair style
#   make docs    build the documentation site into site/ (open site/index.html)
#   make clean   remove all that these made; runs/ stays
#
# DISTRO=jazzy (the default) or kilted: which ROS 2 is set up; another one replaces it.
# On a machine without ROS 2. With ROS 2 installed: colcon build, as CONTRIBUTING.md says.
PYTHON ?= python3
DISTRO ?= jazzy
ARGS ?=
TESTS ?=
NIGHTLY ?= test/nightly
# Unit tests that `make test` runs on a sample and `make nightly` in full.
SAMPLED = $(addprefix test/unit/,audit benchmark crypto experiments federation learner metrics \
  policy privacy selector shield surgery worlds)

.PHONY: run test nightly paper setup workspace lint docs format clean
.NOTPARALLEL:

run: workspace
	@tools/in_workspace fdrl run --release $(ARGS)

test: setup
	@tools/in_workspace tools/test_workspace $(TESTS)

nightly: setup
	@tools/in_workspace python -m pytest -q $(NIGHTLY) $(ARGS)
ifeq ($(strip $(NIGHTLY) $(ARGS)),test/nightly)
	@FDRL_TESTS=full tools/in_workspace python -m pytest -q $(SAMPLED)
endif

paper: nightly

setup: workspace
	@$(PYTHON) tools/setup_torch.py

workspace:
	@command -v $(PYTHON) > /dev/null || { \
	  echo 'Python is missing: apt-get install -y python3 python3-venv python3-dev'; exit 1; }
	@$(PYTHON) tools/setup_workspace.py $(DISTRO)

lint: setup
	@tools/in_workspace python -m pytest -q test/test_lint.py test/unit/test_architecture.py

docs: setup
	@NO_MKDOCS_2_WARNING=1 tools/in_workspace python -m mkdocs build

format: setup
	@tools/in_workspace ruff check --fix-only --quiet .
	@tools/in_workspace ruff format .

clean:
	rm -rf .venv build install log site .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
