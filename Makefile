# One command per habit. `make run` and `make test` need nothing but a Python >= 3.11: they set up the rest.
.DEFAULT_GOAL := help
.PHONY: help run test quick check bench setup setup-run lock clean
SHELL := /bin/sh
# The first Python that is new enough. A name on the PATH may be a version manager's stand-in, so each is asked.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)
NEED_PYTHON = [ -n "$(PYTHON)" ] || { echo "make: Headgate needs Python >= 3.11: install it, or make PYTHON=/path/to/python3" >&2; exit 1; }
VENV := .venv/bin
ARGS ?=
# Processes that run tests side by side; auto: one for each processor, and in make test two more, for long tests wait;
# 0: none.
WORKERS ?= auto
# Threads of Polars and NumPy, as in a service: to hand a small frame to threads costs more than its computation. make
# nightly leaves them as in a command, so that it also finds what depends on their order.
ONE_THREAD := POLARS_MAX_THREADS=1 RAYON_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
SERVICE ?= rules
# pytest rewrites the assertions of each test file, half of the time of collecting: it keeps what it wrote.
export PYTHONDONTWRITEBYTECODE :=

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{ printf "%-16s %s\n", $$1, $$2 }'

run: setup-run ## broker, a service and a generator of shop events, with a live view (SERVICE=rules, ARGS="--events 100000 --json")
	@$(VENV)/headgate up $(SERVICE) $(ARGS)

test: setup ## all checks, and beside them all tests (ARGS="-k name" and the like go to pytest)
	@mkdir -p build; checks=0; tested=0; \
	{ failed=0; $(MAKE) --no-print-directory check >build/check.log 2>&1 || failed=$$?; \
		echo; cat build/check.log; exit $$failed; } & \
	$(ONE_THREAD) $(VENV)/python -m pytest -n $(WORKERS) --durations=10 $(ARGS) || tested=$$?; \
	wait $$! || checks=$$?; \
	[ $$checks -eq 0 ] || { cat build/check.log; echo "make: the checks failed; see above, or run make check" >&2; }; \
	exit $$((checks ? checks : tested))

quick: setup ## the tests that need no server and no Spark, with few examples
	@HYPOTHESIS_PROFILE=quick $(ONE_THREAD) $(VENV)/python -m pytest -n $(WORKERS) --timeout-method signal \
		-m "not slow and not spark and not kafka and not postgres and not opensearch and not registry" $(ARGS)

check: setup ## ruff, mypy, import-linter, and whether the reference pages are those of the code
	@$(VENV)/ruff check . && $(VENV)/ruff format --check --quiet . && $(VENV)/mypy && $(VENV)/lint-imports
	@$(VENV)/python -m tools.reference --check

.PHONY: console-pictures
console-pictures: setup ## the pictures of docs/console.md, from the journeys of tests/console
	@mkdir -p docs/console
	@HEADGATE_JOURNEY_PICTURES=docs/console $(VENV)/python -m pytest -q -n 0 tests/console

.PHONY: reference
reference: setup ## the pages of docs/reference and docs/cookbook, from code and rules
	@$(VENV)/python -m tools.reference

bench: setup ## the figures, as JSON objects (ARGS="per-event" and the like choose a workload)
	@$(VENV)/python -m bench $(ARGS)

setup: ## only the environment
	@$(NEED_PYTHON); $(PYTHON) tools/bootstrap.py dev

setup-run:
	@$(NEED_PYTHON); $(PYTHON) tools/bootstrap.py runtime

UV_COMPILE := $(VENV)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11
UPGRADE ?= --upgrade
lock: setup ## the newest versions that requirements/*.in allow, and the jars' digests (UPGRADE=: only what is new)
	cd requirements && ../$(UV_COMPILE) $(UPGRADE) dev.in -o dev.lock
	cd requirements && ../$(UV_COMPILE) -c dev.lock runtime.in -o runtime.lock
	cd requirements && ../$(UV_COMPILE) -c dev.lock bootstrap.in -o bootstrap.lock
	$(UV_COMPILE) --no-annotate cli/headgate/local/locks/java.in -o cli/headgate/local/locks/java.lock
	$(VENV)/python tools/lock_jars.py

.PHONY: image
# What builds: any command that takes `-t NAME CONTEXT` as `docker build` does (podman build, buildah build), or, with
# a name and a context only, IMAGE_BUILD="some-script {image} {context}".
IMAGE ?= headgate:$(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
IMAGE_BUILD ?= docker build -t {image} {context}
IMAGE_ARGS ?=
KAFKA_IMAGE ?= $(subst headgate:,headgate-kafka:,$(IMAGE))
image_build = $(subst {context},.,$(subst {image},$(1),$(IMAGE_BUILD))) $(IMAGE_ARGS)
image: ## the images of the services and of a small Kafka (IMAGE, IMAGE_BUILD="podman build -t {image} {context}")
	$(call image_build,$(IMAGE))
	$(call image_build,$(KAFKA_IMAGE)) --target kafka

.PHONY: cluster-test
cluster-test: setup image ## on the cluster of KUBECONFIG: install, rules, upgrades, faults, uninstall (HEADGATE_CLUSTER_FULL=1: all)
	@HEADGATE_IMAGE=$(IMAGE) HEADGATE_KAFKA_IMAGE=$(KAFKA_IMAGE) HEADGATE_IMAGE_BUILD="$(IMAGE_BUILD)" \
		$(VENV)/python -m pytest -s tests/cluster $(ARGS)

.PHONY: chart chart-test
chart: setup ## what of the chart is generated: CRDs, the operator's rights, the schema of values
	@$(VENV)/python -m headgate_operator.crds charts/headgate/crds
	@$(VENV)/python -m headgate_operator.rbac > charts/headgate/files/roles.yaml
	@$(VENV)/python -m tools.chart_values

chart-test: setup ## the chart by helm, helm-unittest and promtool (on the PATH); with HEADGATE_KUBECONFIG on that API server too
	@$(VENV)/python -m pytest tests/chart/test_rendered.py tests/chart/test_values.py tests/chart/test_monitoring.py \
		tests/chart/test_on_api_server.py $(ARGS)

clean: ## remove the environment and what tools left; the cache and the broker's data stay
	rm -rf .venv .setup.lock .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: flink-cep
FLINK_CEP := tests/flink_cep/runner
flink-cep: setup ## what Flink's CEP library gives for the patterns of tests/flink_cep (needs Maven and Java 17)
	@$(VENV)/python -m tests.flink_cep.generate build/flink_cep/cases.jsonl
	@mvn --quiet --file $(FLINK_CEP) compile dependency:build-classpath
	@java -XX:+UseSerialGC -cp "$(FLINK_CEP)/target/classes:$$(cat $(FLINK_CEP)/target/classpath)" headgate.Main \
		build/flink_cep/cases.jsonl tests/flink_cep/corpus.jsonl

SCHEDULES ?= 100000
PAIRS ?= 200000
EXPRESSIONS ?= 20000
INPUTS ?= 200000
CHANGES ?= 300
RELEASE ?= 1000
CHANGE_KILLS ?= 5
OWNER_SCHEDULES ?= 5000
APPROVAL_SCHEDULES ?= 1000000
PATTERNS ?= 10000
FEATURE_PAIRS ?= 100000
# Of each of four streams, for each of three odds of damage: a million documents.
JSON_RECORDS ?= 84000
BINARY_SCHEMAS ?= 5000
OWNER_RUNS ?= 20
LAB_MINUTES ?= 60
LAB_SEED ?= $(shell date +%Y%m%d)
DAMAGED_FILES ?= 300
NIGHTLY := nightly-properties nightly-language nightly-decoders nightly-patterns nightly-features nightly-simulation \
	nightly-owners nightly-damaged nightly-approvals nightly-transcripts nightly-changes nightly-lab
.PHONY: nightly $(NIGHTLY)
nightly: setup ## the long forms, one after the other, whichever fails: index against naive, schedules, changes under load
	@$(MAKE) --no-print-directory --keep-going --jobs=1 $(NIGHTLY)
# Each piece is a target of its own: what failed is run again without the others.
$(NIGHTLY): setup
nightly-properties:
	@HYPOTHESIS_PROFILE=nightly $(VENV)/python -m pytest -n $(WORKERS) -m "hypothesis and not spark and not kafka" --timeout 3600 \
		libs services cli/tests $(ARGS)
nightly-approvals:
	@HEADGATE_APPROVAL_SCHEDULES=$(APPROVAL_SCHEDULES) $(VENV)/python -m pytest -n $(WORKERS) --timeout 86400 \
		libs/rulecore/tests/governance/test_schedules.py $(ARGS)
nightly-language:
	@HYPOTHESIS_PROFILE=nightly HEADGATE_PAIRS=$(PAIRS) HEADGATE_TEXT_EVENTS=$(PAIRS) HEADGATE_EXPRESSIONS=$(EXPRESSIONS) HEADGATE_INPUTS=$(INPUTS) \
		HEADGATE_SEED=$(LAB_SEED) $(VENV)/python -m pytest -s --timeout 7200 \
		libs/rulecore/tests/matching/test_access_paths.py libs/rulecore/tests/matching/test_text_index.py libs/rulecore/tests/language/test_functions_against_duckdb.py \
		libs/rulecore/tests/security/test_hostile_texts.py libs/rulecore/tests/security/test_fuzz.py $(ARGS)
nightly-decoders:
	@HEADGATE_JSON_RECORDS=$(JSON_RECORDS) HEADGATE_JSON_SEED=$(LAB_SEED) HEADGATE_BINARY_SCHEMAS=$(BINARY_SCHEMAS) \
		HEADGATE_BINARY_SEED=$(LAB_SEED) $(VENV)/python -m pytest libs/streamcore/tests/decode/walk --timeout 7200 $(ARGS)
nightly-patterns:
	@HEADGATE_PATTERNS=$(PATTERNS) HEADGATE_PATTERN_SEED=$(LAB_SEED) $(VENV)/python -m pytest -n $(WORKERS) libs/streamcore/tests/patterns --timeout 7200 $(ARGS)
nightly-features:
	@HEADGATE_FEATURE_PAIRS=$(FEATURE_PAIRS) HEADGATE_SEED=$(LAB_SEED) $(VENV)/python -m pytest -n $(WORKERS) \
		libs/rulecore/tests/groups/features/test_feature_campaign.py $(ARGS)
nightly-simulation:
	@HEADGATE_SCHEDULES=$(SCHEDULES) $(VENV)/python -m pytest -s services/operator/tests/test_simulation.py $(ARGS)
nightly-owners:
	@HEADGATE_OWNER_SCHEDULES=$(OWNER_SCHEDULES) HEADGATE_OWNER_RUNS=$(OWNER_RUNS) $(VENV)/python -m pytest -s \
		libs/streamcore/tests/kafka/test_suspended_owners.py libs/streamcore/tests/kafka/test_suspended_processes.py --timeout 7200 $(ARGS)
nightly-damaged:
	@HEADGATE_DAMAGED_FILES=$(DAMAGED_FILES) HEADGATE_DAMAGED_SEED=$(LAB_SEED) $(VENV)/python -m pytest -s \
		tests/faults/test_damaged_spark_files.py --timeout 7200 $(ARGS)
nightly-transcripts:
	@HEADGATE_TRANSCRIPTS_EVERY=1 $(VENV)/python -m pytest -s tests/end_to_end/test_transcripts_on_spark.py $(ARGS)
nightly-changes:
	@HEADGATE_CHANGES=$(CHANGES) HEADGATE_RELEASE=$(RELEASE) HEADGATE_CHANGE_KILLS=$(CHANGE_KILLS) \
		$(VENV)/python -m pytest -s tests/faults/test_changes_under_load.py $(ARGS)
nightly-lab:
	@$(VENV)/python -m tests.lab --seed $(LAB_SEED) --minutes $(LAB_MINUTES)

.PHONY: operator-test
OPERATOR_KILLS ?= 40
operator-test: setup ## the operator, and the console's page of upgrades, on the API server of HEADGATE_KUBECONFIG (no nodes needed), killed after each write
	@HEADGATE_OPERATOR_KILLS=$(OPERATOR_KILLS) $(VENV)/python -m pytest -s services/operator/tests tests/console/test_upgrades_journey.py $(ARGS)

.PHONY: sink-test
SINK_KILLS ?= 10
SINK_AWAY_S ?= 30
sink-test: setup ## kill -9 of services and of the servers they write to, servers away, a full disk (SINK_KILLS, SINK_AWAY_S)
	@HEADGATE_SINK_KILLS=$(SINK_KILLS) HEADGATE_SINK_AWAY_S=$(SINK_AWAY_S) $(VENV)/python -m pytest tests/faults/test_services_under_faults.py $(ARGS)

.PHONY: kill-test
KILLS ?= 20
kill-test: setup ## kill -9 of the app at random moments of one replay, KILLS times (20)
	@HEADGATE_KILLS=$(KILLS) $(VENV)/python -m pytest tests/faults/test_kills.py tests/faults/test_duplicates_under_kills.py $(ARGS)

.PHONY: lab
lab: setup ## an hour of random kills, pauses, full disks and clock jumps, judged by an oracle (ARGS="--seed 17 --round 3" repeats)
	@$(VENV)/python -m tests.lab $(ARGS)
