# deltawire. `make` alone explains; the work is in scripts/ and CMakePresets.json.
.DEFAULT_GOAL := help
.PHONY: help demo test check check-torch check-gpu check-trainers bench lint docs clean packages check-packages \
	bench-packages cross-packages docs-packages wheel-packages venv release wheels
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
	@echo "  make test     build (g++ release; libraries under ASan + UBSan) and run the tests that can run here;"
	@echo "                a test that passed with the same programs, files, data and machine is not run again, but with AGAIN=1"
	@echo "  make check    test, and the thorough tests, tests sanitized themselves, clang 19, aarch64, thread sanitizer, fuzzing, formatting, clang-tidy,"
	@echo "                and small faults planted in the lines changed since main (MUTANTS_SINCE=commit)"
	@echo "  make check-trainers   install Lightning, Accelerate, transformers and Ray aside and run their recipes"
	@echo "  make check-torch VERSION=2.6.0   test the PyTorch door against another PyTorch"
	@echo "  make check-gpu   run what the project has for a GPU, and print one page (about 4 minutes)"
	@echo "  make bench    measure speeds (the machine should have nothing else to do)"
	@echo "  make wheels   build wheels that run elsewhere, for the Pythons that are here, and test each: dist/"
	@echo "  make lint     formatting and style alone: quick answers while you write"
	@echo "  make docs     the documentation as a site, in build/site: guides, and references made from the code"
	@echo "  make clean    remove everything built (keeps .venv, which is slow to download)"
	@echo
	@echo "The first run installs system packages (as root; otherwise it prints the command) and a Python"
	@echo "environment in .venv. JOBS=n compiles n files at once."

packages:
	@scripts/install_system_packages.sh base

check-packages:
	@scripts/install_system_packages.sh base check wheel

bench-packages:
	@scripts/install_system_packages.sh base bench

cross-packages:
	@scripts/install_system_packages.sh base cross

docs-packages:
	@scripts/install_system_packages.sh base docs

wheel-packages:
	@scripts/install_system_packages.sh base wheel

venv: packages
	@scripts/settle_clone.sh
	@scripts/make_venv.sh

# What a user runs, without the tests: the command-line program and the Python extension.
release: venv
	@cmake --preset release
	@cmake --build --preset release -j $(JOBS) --target deltawire deltawire_python_stub

# The Python extension alone. What root writes under sudo is given back to whoever called it.
demo: venv
	@cmake --preset release
	@cmake --build --preset release -j $(JOBS) --target deltawire_python
	@.venv/bin/python -m lab.demo $(ARGS); status=$$?; \
	[ -z "$$SUDO_UID" ] || chown -fR "$$SUDO_UID:$$SUDO_GID" build out .venv; exit $$status

test: packages
	@scripts/settle_clone.sh
	@scripts/run_steps.sh test

# PYTHONS: interpreters to build for and test with; default: python3.10 to python3.14, those that are here.
wheels: wheel-packages venv
	@.venv/bin/python scripts/wheels.py $(if $(PYTHONS),--pythons $(PYTHONS)) $(ARGS)

check: check-packages cross-packages docs-packages wheel-packages venv
	@scripts/run_steps.sh check

check-trainers: release
	@scripts/check_trainers.sh

# PYTHON: an interpreter that has torch, instead of VERSION.
check-torch: packages
	@scripts/check_torch.sh "$(if $(VERSION),$(VERSION),$(PYTHON))"

# PYTHON: an interpreter with a GPU's PyTorch and deltawire, instead of .venv's (scripts/check_gpu.sh).
check-gpu: $(if $(PYTHON),,release)
	@scripts/check_gpu.sh

lint: check-packages venv
	@scripts/run_steps.sh lint

docs: docs-packages release
	@scripts/build_docs.sh

bench: bench-packages release
	@scripts/run_steps.sh bench

clean:
	rm -rf build out dist .venv-trainers .venv-twins .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
	@echo "clean. The Python environment stays; 'rm -rf .venv' removes it too."
