# Everything a person or CI does here. Each target installs what it needs first; a second call takes seconds.
# Needs on the machine: Debian 12 (root, or sudo), make, and python3.11. Variables: PYTHON, JOBS, CMAKE_FLAGS.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

PYTHON ?= python3.11
JOBS ?= $(shell nproc)
CMAKE_FLAGS ?=
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Python compiles what is imported; all of torch, vLLM and MindSpore would take minutes.
export PIP_COMPILE := 0
# What is imported is compiled once, not by each of a thousand programs.
unexport PYTHONDONTWRITEBYTECODE
export MSPROBE_ORACLE ?= $(CURDIR)/.oracle
export MSPROBE_REFERENCE ?= $(or $(wildcard $(abspath ../shared/reference)),$(MSPROBE_ORACLE)/reference)

VENV := .venv
ORACLE := .oracle
VLLM := .venv-vllm
MINDSPORE := .venv-mindspore
MINDSPORE_ORACLE := .oracle-mindspore
TENSORBOARD := .tensorboard
RUN := $(VENV)/bin/python

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: build ## run the main job: a model through agent, server and store, and a table of the run
	@$(RUN) demo/demo.py --output demo_out

build: cpp ## install what is missing, build the C++, make and install the three wheels
	@$(RUN) scripts/make_wheels.py --install

dev: build tests lint-tools ## all that working on it needs: tests' and linters' packages, and build/ configured with tests

test: venv ## every test: C++, Python, integration, interop with mindstudio-probe, vLLM, deployment, sanitizers, linters
	@$(MAKE) -j2 build environments
	@$(MAKE) tests oracle tensorboard vllm mindspore
	@$(RUN) scripts/run_suites.py

test-vllm: build tests vllm ## capture inside the real vLLM, in an environment of its own (.venv-vllm)
	@$(RUN) scripts/run_suites.py vllm

test-mindspore: build tests mindspore ## capture inside the real MindSpore beside mindstudio-probe, each in an environment of its own
	@$(RUN) scripts/run_suites.py mindspore

test-mindspore-versions: build tests mindspore ## the same in MindSpore 2.9 and 2.10, without mindstudio-probe
	@for version in 2.9.0 2.10.0; do $(MAKE) mindspore MINDSPORE=.venv-mindspore-$$version MINDSPORE_VERSION=$$version && \
	  MSPROBE_MINDSPORE=$(CURDIR)/.venv-mindspore-$$version $(RUN) -m pytest -q tests/mindspore; done

demo-mindspore: build mindspore-run ## train LeNet in MindSpore twice, one of its weights at fault, and find which
	@$(RUN) demo/demo_mindspore.py --output demo_out/mindspore --python $(MINDSPORE)/bin/python

test-operate: build chaos-programs operate-tools lint-tools ## what is in deploy/: manifests, rules and dashboards in Prometheus, package, image
	@$(RUN) scripts/run_suites.py operate

package: cpp ## the server as a Debian package and as a tarball, in dist/
	@$(RUN) scripts/make_package.py

image: cpp operate-packages ## the server's image as an OCI archive in dist/, built without a container engine, and started once
	@$(RUN) scripts/make_image.py

dashboards: venv operate-tools ## what deploy/ has generated: Grafana's dashboards, PrometheusRule, the chart's copies
	@$(RUN) deploy/grafana/make_dashboards.py
	@$(RUN) deploy/make_copies.py

bench: build oracle vllm mindspore benchmarks operate-tools ## what capture costs (docs/overhead.md), load (docs/load.md), comparisons, microbenchmarks; three quarters of an hour
	@$(RUN) tests/bench/bench.py

fuzz: test-tools lint-tools ## libFuzzer on every decoder, ten minutes each (SECONDS_EACH)
	@$(RUN) tests/fuzz/run.py --seconds $(or $(SECONDS_EACH),600)

lint: cpp tests lint-tools ## clang-format, clang-tidy, thread-safety analysis, ruff, mypy
	@$(RUN) scripts/lint.py

sanitize: test-tools ## C++ unit tests under the address and undefined-behaviour sanitizers
	@$(RUN) scripts/run_suites.py sanitize

tsan: test-tools ## unit tests of core, stats and store under ThreadSanitizer, with an Abseil built for it (build-tsan)
	@$(RUN) scripts/run_suites.py tsan

sanitize-capture: build tests ## capture inside Python under the address and undefined-behaviour sanitizers, then under ThreadSanitizer
	@$(RUN) scripts/run_suites.py capture-sanitize capture-tsan

upgrade: build tests ## this server and agent with those of an older build, of a commit in the history, which it makes (build-older)
	@$(RUN) scripts/run_suites.py upgrade

chaos: build tests chaos-programs ## servers and agents killed, frozen, cut off and without room, at length: about ninety minutes
	@$(RUN) scripts/run_suites.py chaos

wheels: cpp ## the three wheels in dist/
	@$(RUN) scripts/make_wheels.py

wheels-all: cpp ## the agent for every torch and Python in one wheel, in dist/all/; downloads torch by gigabytes, builds for an hour
	@JOBS=$(JOBS) $(RUN) scripts/make_agents.py $(AGENTS)

wheels-test: wheels-all tests ## that wheel in an empty environment for each torch and Python: it captures, and changes no bit
	@$(RUN) -m pytest -q --override-ini timeout=3600 -k 'not aarch64' tests/wheels

wheels-aarch64: cpp aarch64-tools ## the agent for aarch64 and every torch in one wheel, in dist/aarch64/, cross-built; downloads torch by gigabytes
	@JOBS=$(JOBS) $(RUN) scripts/make_agents.py --aarch64 $(AGENTS)

wheels-aarch64-test: wheels-aarch64 tests ## that wheel under qemu-user, for each torch: it captures, and changes no bit
	@$(RUN) -m pytest -q --override-ini timeout=7200 -k aarch64 tests/wheels

properties: build tests oracle ## property tests with a fresh seed, which is printed (MSPROBE_SEED), and more examples (MSPROBE_EXAMPLES)
	@MSPROBE_SEED=$${MSPROBE_SEED:-$$(date +%s)} MSPROBE_EXAMPLES=$${MSPROBE_EXAMPLES:-100} $(RUN) -m pytest -q -m '' \
	  --override-ini timeout=3600 tests/integration/test_random.py tests/interop/test_compare_properties.py

nightly: build oracle tensorboard vllm mindspore operate-tools benchmarks chaos-programs ## what is too long for every change: sanitizers, an older build, newer libraries, chaos, fuzzers, property tests, bench
	@rm -rf build-newer/root
	@$(RUN) scripts/run_suites.py sanitize tsan capture-sanitize capture-tsan upgrade newer newer-server chaos
	@$(RUN) -m pytest -q -m nightly --ignore tests/integration/test_random.py tests/integration tests/interop tests/operate
	@MSPROBE_NODE_STRIDE=1 $(RUN) -m pytest -q tests/interop/test_graph_plugins.py
	@$(RUN) -m pytest -q client_py/tests/ray_workers.py
	@$(RUN) -m pytest -q tests/integration/check_on_ray.py tests/integration/repro_of_transformers.py tests/integration/compile_check_of_transformers.py
	@$(MAKE) properties
	@$(MAKE) wheels-test AGENTS=--tested
	@$(MAKE) wheels-aarch64-test AGENTS='--torch 2.13.0'
	@$(MAKE) test-mindspore-versions
	@$(MAKE) fuzz lint
	@$(RUN) tests/bench/load.py --only ranks64 --only overload_stall --only overload_drop --overload-seconds 600
	@$(RUN) tests/bench/trend_database.py --steps 10000
	@$(RUN) tests/bench/rules.py
	@MSPROBE_EXPLORER_ENTRIES=30000 $(RUN) -m pytest -q --override-ini timeout=3600 tests/operate/test_model_explorer.py
	@$(RUN) tests/bench/bench.py

clean: ## remove what was built; the virtual environments stay
	rm -rf build build-aarch64 build-asan build-tsan build-fuzz build-newer build-older dist demo_out

# Tests are configured once they are asked for: what they need is not in the first command.
cpp: venv
	@test -f build/build.ninja || cmake -S . -B build -G Ninja -DMSPROBE_PYTHON=$(CURDIR)/$(VENV)/bin/python \
	  -DMSPROBE_BUILD_TESTS=OFF $(CMAKE_FLAGS)
	@ninja -C build -j $(JOBS) --quiet msprobe-server _agent _mindspore

tests: cpp test-tools
	@grep -q '^MSPROBE_BUILD_TESTS:BOOL=ON' build/CMakeCache.txt || cmake -S . -B build -DMSPROBE_BUILD_TESTS=ON

benchmarks: tests
	@ninja -C build -j $(JOBS) --quiet msprobe_benchmarks load_generator

chaos-programs: tests
	@ninja -C build -j $(JOBS) --quiet server_crash_test network_test planned_agent load_generator

# Debian packages are looked up at every call (50 ms), since they can go without any file here changing.
debian:
	@scripts/install_debian_packages.sh scripts/debian_packages.txt

test-tools: $(VENV)/.requirements-test aarch64-tools
	@scripts/install_debian_packages.sh scripts/debian_packages_test.txt

aarch64-tools:
	@scripts/install_debian_packages.sh scripts/debian_packages_aarch64.txt

lint-tools: $(VENV)/.requirements-lint
	@scripts/install_debian_packages.sh scripts/debian_packages_lint.txt

operate-packages:
	@scripts/install_debian_packages.sh scripts/debian_packages_operate.txt

operate-tools: operate-packages $(VENV)/.requirements-operate $(VENV)/.requirements-test
	@$(RUN) scripts/operate_tools.py

venv: $(VENV)/.requirements
oracle: $(ORACLE)/.requirements
	@test -f $(MSPROBE_REFERENCE)/dump/make.py || \
	  $(ORACLE)/bin/python tests/interop/recordings/record.py $(MSPROBE_ORACLE)/reference

# What is installed is said, and where the list is.
define install
	@echo "installing Python packages into $(1): $$(grep -c == $<) of $<"
	@$(1)/bin/python -m pip install --quiet -r $<
	@touch $@
endef

# torch goes first and alone: anything else that needs it would pull a build with gigabytes of CUDA.
$(VENV)/.torch: scripts/requirements-torch.txt | debian
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(call install,$(VENV))

$(VENV)/.requirements: scripts/requirements.txt $(VENV)/.torch
	$(call install,$(VENV))

$(VENV)/.requirements-%: scripts/requirements-%.txt $(VENV)/.requirements
	$(call install,$(VENV))

# mindstudio-probe owns the package name msprobe too, so it lives apart.
$(ORACLE)/.requirements: scripts/requirements-oracle.txt scripts/requirements-torch.txt | debian
	@test -x $(ORACLE)/bin/python || $(PYTHON) -m venv $(ORACLE)
	$(ORACLE)/bin/python -m pip install --quiet -r scripts/requirements-torch.txt
	$(call install,$(ORACLE))

tensorboard: $(TENSORBOARD)/.requirements

$(TENSORBOARD)/.requirements: scripts/requirements-tensorboard.txt | debian
	@test -x $(TENSORBOARD)/bin/python || $(PYTHON) -m venv $(TENSORBOARD)
	$(call install,$(TENSORBOARD))

# vLLM and our wheels live in one environment; mindstudio-probe, whose package has our name, in a folder of its own there.
$(VLLM)/.requirements: scripts/requirements-vllm.txt scripts/requirements-torch.txt scripts/requirements-oracle.txt | debian
	@test -x $(VLLM)/bin/python || $(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet -r scripts/requirements-torch.txt
	@echo "installing Python packages into $(VLLM): $$(grep -c == $<) of $<"
	@$(VLLM)/bin/python -m pip install --quiet --no-deps -r $<
	@$(VLLM)/bin/python -m pip install --quiet --no-deps --upgrade --target $(VLLM)/mindstudio \
	  "$$(grep ^mindstudio-probe scripts/requirements-oracle.txt)"
	@touch $@

vllm: build $(VLLM)/.requirements
	@$(VLLM)/bin/python -m pip install --quiet --no-deps --force-reinstall dist/msprobe_agent-*.whl dist/msprobe_server-*.whl

# MindSpore and our wheels; numpy is an older one than the other environments have. The tool it is compared with lives apart.
MINDSPORE_VERSION := $(shell sed -n 's/^mindspore==//p' scripts/requirements-mindspore.txt)
$(MINDSPORE)/.requirements: scripts/requirements-mindspore.txt | debian
	@test -x $(MINDSPORE)/bin/python || $(PYTHON) -m venv $(MINDSPORE)
	@echo "installing MindSpore $(MINDSPORE_VERSION) into $(MINDSPORE)"
	@sed 's/^mindspore==.*/mindspore==$(MINDSPORE_VERSION)/' $< | $(MINDSPORE)/bin/python -m pip install --quiet -r /dev/stdin
	@touch $@

$(MINDSPORE_ORACLE)/.requirements: scripts/requirements-mindspore.txt scripts/requirements-oracle.txt | debian
	@test -x $(MINDSPORE_ORACLE)/bin/python || $(PYTHON) -m venv $(MINDSPORE_ORACLE)
	@echo "installing MindSpore and mindstudio-probe into $(MINDSPORE_ORACLE)"
	@$(MINDSPORE_ORACLE)/bin/python -m pip install --quiet -r $< "$$(grep ^mindstudio-probe scripts/requirements-oracle.txt)"
	@touch $@

mindspore-run: build $(MINDSPORE)/.requirements
	@$(MINDSPORE)/bin/python -m pip install --quiet --no-deps --force-reinstall dist/msprobe_agent-*.whl dist/msprobe_server-*.whl

mindspore: mindspore-run $(MINDSPORE_ORACLE)/.requirements

# Downloads and unpacks what tests need, one after another, which leaves most of the machine to whatever compiles.
environments:
	@for each in test-tools operate-tools lint-tools; do $(MAKE) $$each; done
	@for each in $(ORACLE) $(TENSORBOARD) $(VLLM) $(MINDSPORE) $(MINDSPORE_ORACLE); do $(MAKE) $$each/.requirements; done

.PHONY: aarch64-tools bench benchmarks build chaos chaos-programs clean cpp dashboards debian demo demo-mindspore dev environments fuzz \
  help image lint lint-tools mindspore mindspore-run nightly operate-packages operate-tools oracle package properties \
  sanitize sanitize-capture tensorboard test test-mindspore test-mindspore-versions test-operate test-tools test-vllm \
  tests tsan upgrade venv vllm wheels wheels-aarch64 \
  wheels-aarch64-test wheels-all wheels-test
