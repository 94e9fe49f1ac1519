# Each target does its own set-up in .venv; Python 3.11+ and git are all it needs. CONTRIBUTING.md has the table of what runs where.
.DEFAULT_GOAL := test
.PHONY: install demo docs test test-all lint types unit fast integration e2e attacks proof bench bench-action live live-e2b chaos action runners sandboxes lock clean

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; raise SystemExit(sys.version_info < (3, 11))' 2>/dev/null && { command -v $$p; break; }; done)
BIN := .venv/bin
DEMO := demo-out
CORES ?= $(shell nproc 2>/dev/null || echo 2)
# Tests wait for disks, processes and servers of theirs as long as they compute.
WORKERS ?= $(shell expr $(CORES) \* 2)

# Hundreds of processes would otherwise compile the same modules again, each for itself.
unexport PYTHONDONTWRITEBYTECODE

install: .venv/.installed

.venv/.installed: requirements/dev.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "agent-fix needs Python 3.11 or newer on PATH (or PYTHON=/path/to/it)." >&2; exit 1; }
	@echo "Setting up .venv, once: $$(grep -c '^[a-z]' requirements/dev.txt) packages, about a minute (with pip alone, up to three)."
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/installer.txt
	@# uv shows its progress, but does not know every mirror that pip knows.
	$(BIN)/uv pip install --python $(BIN)/python --require-hashes -r requirements/dev.txt \
		|| $(BIN)/python -m pip install --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: install
	@$(BIN)/agent-fix demo --out $(DEMO)

test: lint
	@$(MAKE) --no-print-directory -j2 types fast

# One story of each kind of integration, beside the unit tests. They start first, because they wait the longest.
STORIES := tests/e2e/test_story.py tests/e2e/test_e2b_story.py::test_a_server_works_in_e2b_from_a_label_to_a_draft \
	tests/integration/server/browser/test_setup.py tests/integration/server/browser/test_dashboard.py tests/integration/server/browser/test_forms.py \
	tests/integration/git/test_git_store.py tests/integration/git/test_inspection.py \
	tests/integration/sandbox/test_layers.py::test_node_modules_is_writable_and_the_next_sandbox_has_it_as_it_was \
	$(addprefix tests/integration/sandbox/test_fixture_projects.py::, test_a_dependency_by_git_ssh_is_left_out_and_named \
	test_runners_that_a_program_starts_report_their_tests) \
	tests/integration/github/triggers/test_triggers.py tests/integration/github/test_effects.py \
	tests/integration/github/test_calls.py tests/integration/github/test_fake_shapes.py tests/integration/github/test_graphql_documents.py \
	tests/integration/examples/test_python.py tests/integration/examples/test_node.py \
	$(addprefix tests/integration/sandbox/test_verifier.py::, test_pytest_red_to_green_is_tested test_unittest_red_to_green_is_tested \
	test_node_red_to_green_is_tested test_hidden_examples_that_turn_are_proof test_a_false_claim_is_broken_and_the_agent_is_told_why) \
	tests/integration/server/test_litellm_model.py tests/attacks/test_patch_policy.py
PYTEST := $(BIN)/pytest -n $(WORKERS) --dist loadgroup

# Compiles tests and libraries once, in one process, before several workers would.
.venv/.compiled: .venv/.installed
	@$(BIN)/pytest --collect-only tests > /dev/null
	@touch $@

fast: .venv/.compiled
	$(PYTEST) $(STORIES) tests/unit

# Everything but tests that take hours; those need --full: chaos, runners, sandboxes, action.
# One session for the other tiers, because the last tests of each leave processors idle.
test-all: test docs
	$(PYTEST) tests/integration tests/contract tests/e2e tests/attacks tests/chaos $(STORIES:%=--deselect=%)

integration: install
	$(PYTEST) tests/integration tests/contract $(STORIES:%=--deselect=%)

e2e: install
	$(PYTEST) tests/e2e $(STORIES:%=--deselect=%)

attacks: install
	$(PYTEST) tests/attacks tests/chaos $(STORIES:%=--deselect=%)

# Attacks on the verdict, and honest fixes: every one of them, with a table of families.
proof: install
	$(BIN)/pytest -n $(CORES) --dist loadgroup tests/attacks/proof --full

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy

unit: install
	$(BIN)/pytest -n $(WORKERS) tests/unit

# A real Kubernetes API for tests/e2e/test_jobs_in_clusters.py: built from its own source, which takes Go and half an hour.
# etcd comes from the distribution (`apt-get install etcd-server`), kubectl from wherever you have it.
KUBERNETES := 1.36.3
KEDA := 2.18.0
.PHONY: kubernetes-tools kubernetes simulate
kubernetes-tools:
	tests/support/kubernetes/build.sh $(KUBERNETES) $(KEDA) .cache/kubernetes

kubernetes: install kubernetes-tools
	$(BIN)/pytest tests/e2e/test_jobs_in_clusters.py

# 1,000,000 repositories and 10,000 jobs at once, computed.
simulate: install
	@$(BIN)/python -m bench.simulation

chaos: install
	$(BIN)/pytest -n $(CORES) tests/chaos --full

runners: install
	$(BIN)/pytest -n $(CORES) tests/e2e/test_external_agents.py --full

sandboxes: install
	$(BIN)/pytest -n $(CORES) --dist loadgroup --full tests/contract/test_sandbox.py tests/integration/sandbox/containers tests/integration/sandbox/e2b

action: install
	$(BIN)/pytest --full tests/e2e/test_action.py tests/e2e/test_workflow_templates.py tests/unit/action/test_workflows.py tests/unit/action/test_action_files.py

docs: install .venv/.docs
	$(BIN)/python -m docs.generate --check
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

.venv/.docs: requirements/docs.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/docs.txt
	@touch $@

bench: install
	@$(BIN)/python -m bench.all

live: install
	@$(BIN)/python -m tests.live

# E2B's own cloud, for who has a key (E2B_API_KEY); a few cents. We have never run it: we have none.
live-e2b: install
	AGENT_FIX_E2B_LIVE=1 $(BIN)/pytest -n 0 tests/integration/sandbox/e2b/test_live.py

.PHONY: bench-projects
# MIRRORS names a folder of mirrors, if GitHub is not to be asked; ONLY names projects.
bench-projects: install
	@$(BIN)/python -m bench.projects $(if $(MIRRORS),--mirrors $(MIRRORS)) $(if $(ONLY),--only $(ONLY))

bench-action: install
	@$(BIN)/python -m bench.action

# What the images, the Action and the tests install; a fix on the command line needs no extra.
EXTRAS := --extra server --extra e2b
# Traces and notifications: in the image, and for the types and tests.
WATCHING := --extra otel --extra notify
# Clients of the clusters that jobs can run in: in the image, and for the types and tests.
CLUSTERS := --extra ecs --extra kubernetes

lock: install
	$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements/installer.txt
	$(BIN)/uv pip compile requirements/installer.in --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-header --no-annotate --no-strip-extras --quiet --output-file requirements/installer.txt
	$(BIN)/uv pip compile pyproject.toml $(EXTRAS) --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-header --no-annotate --no-strip-extras --quiet --output-file requirements/runtime.txt
	$(BIN)/uv pip compile pyproject.toml $(EXTRAS) $(CLUSTERS) $(WATCHING) --constraints requirements/runtime.txt --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --no-header --no-annotate --no-strip-extras --quiet --output-file requirements/image.txt
	$(BIN)/uv pip compile pyproject.toml requirements/build.in $(EXTRAS) $(CLUSTERS) $(WATCHING) --group dev --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --no-header --no-annotate --no-strip-extras --quiet --output-file requirements/dev.txt
	$(BIN)/uv pip compile requirements/docs.in --constraints requirements/dev.txt --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --no-header --no-annotate --no-strip-extras --quiet --output-file requirements/docs.txt
	$(BIN)/uv pip compile requirements/build.in --constraints requirements/dev.txt --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --no-header --no-annotate --no-strip-extras --quiet --output-file requirements/build.txt

clean:
	rm -rf .venv .site $(DEMO) dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .cache
