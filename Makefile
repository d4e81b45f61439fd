# deltawire. `make` alone explains; the work is in scripts/ and CMakePresets.json.
.DEFAULT_GOAL := help
.PHONY: help demo test check check-trainers bench lint docs clean packages check-packages bench-packages \
	docs-packages venv release
SHELL := /bin/bash

# Programs compiled at once; each may take about 1 GB of memory.
JOBS ?= $(shell nproc)
export JOBS

help:
	@echo "deltawire: train over thin wires"
	@echo
	@echo "  make demo     train a real network with 4 workers over a 100 Mbit/s link, once per method;"
	@echo "                the report lands in out/demo/. Options: make demo ARGS='--help'"
	@echo "  make release  build what users get: the program build/release/deltawire and the Python package"
	@echo "  make test     build (g++ release; libraries under ASan + UBSan) and run every test that can run here"
	@echo "  make check    test, and tests sanitized themselves, clang 19, thread sanitizer, fuzzing, formatting, clang-tidy"
	@echo "  make check-trainers   install Lightning, Accelerate, transformers and Ray aside and run their recipes"
	@echo "  make bench    measure speeds (the machine should have nothing else to do)"
	@echo "  make lint     formatting and style alone: quick answers while you write"
	@echo "  make docs     the documentation as a site, in build/site: guides, and references made from the code"
	@echo "  make clean    remove everything built (keeps .venv, which is slow to download)"
	@echo
	@echo "The first run installs system packages (as root; otherwise it prints the command) and a Python"
	@echo "environment in .venv. JOBS=n compiles n files at once."

packages:
	@scripts/install_system_packages.sh base

check-packages:
	@scripts/install_system_packages.sh base check

bench-packages:
	@scripts/install_system_packages.sh base bench

docs-packages:
	@scripts/install_system_packages.sh base docs

venv: packages
	@scripts/settle_clone.sh
	@scripts/make_venv.sh

# What a user runs, without the tests: the command-line program and the Python extension.
release: venv
	@cmake --preset release
	@cmake --build --preset release -j $(JOBS) --target deltawire deltawire_python_stub

# The Python extension alone.
demo: venv
	@cmake --preset release
	@cmake --build --preset release -j $(JOBS) --target deltawire_python
	@.venv/bin/python -m lab.demo $(ARGS)

test: venv
	@scripts/run_steps.sh test

check: check-packages docs-packages venv
	@scripts/run_steps.sh check

check-trainers: release
	@scripts/check_trainers.sh

lint: check-packages venv
	@scripts/run_steps.sh lint

docs: docs-packages release
	@scripts/build_docs.sh

bench: bench-packages release
	@scripts/run_steps.sh bench

clean:
	rm -rf build out dist .venv-trainers .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
	@echo "clean. The Python environment stays; 'rm -rf .venv' removes it too."
