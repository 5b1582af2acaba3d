# All commands of the bundle; `make` alone lists them. Give settings on the command line
# (make up ARCH=resnet18) or in .env; .env.example explains each.

# Ctrl-C is held back until a command can handle it: while Python itself starts, it would print a
# traceback.
RUN := @env --block-signal=INT .venv/bin/python -m scripts.commands
PYTEST := .venv/bin/python -m pytest
# What runs servers under load keeps two cores busy with fewer workers.
LONG := -n 3 -m "long and not rare"

# Passed on as typed: make would expand a $ in a file name or text.
$(foreach name,IMG IN OUT SOUND TEXT INPUTS VIDEO,$(eval override export $(name) := $$(value $(name))))

# If this were set, every command would compile all its imports again, which takes seconds. The next
# is for another Python; and what is shown has letters that not every locale has.
unexport PYTHONDONTWRITEBYTECODE PYTHONHOME PYTHONIOENCODING
export PYTHONUTF8 := 1

.DEFAULT_GOAL := help
.PHONY: anew help version can-measure demo doctor up classify ask add-model remove-model \
	bench rivals torture tune keys publish rollout shadow rollback history eval status models load unload \
	logs scale drift trace \
	down images prune clean check test test-all test-changed test-rare pins lint prove

# Layers of the environment: installed before the first command that needs them, and again after a
# change of what they need. A command installs the layers itself that it needs only sometimes.
# Where their Python is gone, or is another one since, that is told.
LAYER := .venv/layers
PYTHON_FITS := $(wildcard .venv/lib/$(notdir $(realpath .venv/bin/python))/site-packages)
$(LAYER)/%: $(if $(PYTHON_FITS),,anew) $(wildcard $(foreach of,. benchmark kinds/* extensions/*,$(of)/requirements/*.txt $(of)/requirements/locked/*.txt))
	@env --block-signal=INT python3 -m scripts.bootstrap $*
APART := $(LAYER)/perf_analyzer
# Whether this machine can measure is asked before the minutes that these take.
MEASURES := $(if $(wildcard $(LAYER)/perf_analyzer),,can-measure) $(LAYER)/bench $(LAYER)/perf_analyzer

# Commands that kinds of pipelines and extensions bring.
HASH := \#
OWN_FOLDER := $(or $(OWN),$(shell sed -nE "s/[[:space:]]+$(HASH).*//; s/^[[:space:]]*(export[[:space:]]+)?OWN[[:space:]]*=[[:space:]]*[\"']?([^\"'[:space:]]*).*/\2/p" .env 2>/dev/null | tail -n 1),own)
include $(wildcard kinds/*/commands.mk $(OWN_FOLDER)/kinds/*/commands.mk extensions/*/commands.mk)

##@ First steps

help: ## List the commands of the first weeks (ALL=1: every command)
	@python3 -m scripts.program.help

demo: $(LAYER)/tools ## See it work: a network, a server, a picture, an answer
	$(RUN) serve.demo

doctor: $(LAYER)/tools ## Find common problems, with the fix for each
	$(RUN) --any-layout serve.doctor

version: ##+ Print the bundle's version
	@sed -n 's/^__version__ = "\(.*\)".*/\1/p' client/bundle_client/__init__.py

##@ Serve and ask

up: $(LAYER)/tools ## Start the server with your network (FROM=birds.onnx LABELS=birds.txt), or ImageNet's (ARCH=, WEIGHTS=)
	$(RUN) serve.up

classify: $(LAYER)/tools ## Name what a picture shows: IMG=photo.jpg (TOP=5, JSON=1, MODEL=places, OUT=labels.csv); or MODEL=sounds SOUND=bell.wav
	$(RUN) serve.ask

ask: $(LAYER)/tools ## Ask a function of yours: MODEL=mine INPUTS='{"text": "What a day!"}' (without INPUTS: its example), or a table: IN=rows.csv
	$(RUN) serve.ask

add-model: $(LAYER)/tools $(LAYER)/adopt ## Serve your own network: NAME=birds ONNX=birds.onnx LABELS=birds.txt (or ARCH=, FROM=)
	$(RUN) serve.add_model

remove-model: $(LAYER)/tools ##+ Remove a network or function that you added: NAME=birds (without NAME: list them)
	$(RUN) serve.remove_model

models: $(LAYER)/tools ## List the models that the server knows
	$(RUN) serve.models

load: $(LAYER)/tools ##+ Load or reload a Triton model: TRITON_MODEL=resnet50_onnx
	$(RUN) serve.load

unload: $(LAYER)/tools ##+ Unload a Triton model that no pipeline needs: TRITON_MODEL=another
	$(RUN) serve.unload

##@ Versions

publish: $(LAYER)/tools ## Build a new version while the live one serves (ARCH=, WEIGHTS=, PRECISION=)
	$(RUN) versions.publish

rollout: $(LAYER)/tools ## Switch to it with no downtime; roll back automatically (CANARY=10, VERSION=3)
	$(RUN) versions.rollout

shadow: $(LAYER)/tools ##+ Ask a version copies of real requests, unseen (VERSION=3, SHARE=10, MINUTES=5)
	$(RUN) versions.shadow

rollback: $(LAYER)/tools ## Return to the previous version, with no downtime
	$(RUN) versions.rollback

history: $(LAYER)/tools ##+ Show which version was live when
	$(RUN) versions.history

##@ Measure

eval: $(LAYER)/tools $(LAYER)/bench ## Measure how right it is on labelled data, and write a report (EVAL=val, MODEL=, JSON=1)
	$(RUN) measure.eval

can-measure: $(LAYER)/tools
	$(RUN) measure.can_measure

bench: $(LAYER)/tools $(MEASURES) ## Measure the speed and write a report (QUICK=1, MODEL=, IMAGES=, COMPARE=)
	$(RUN) measure.bench

rivals: $(LAYER)/tools $(LAYER)/rivals ##+ Compare with the pipeline in Triton's examples and other servers (QUICK=1, MINUTES=5, IMAGES=, ONLY=, PRECISIONS=, DRAFT=1)
	$(RUN) benchmark.compare

torture: $(LAYER)/tools ##+ Break a separate server in every known way and check that it recovers (QUICK=1)
	$(RUN) benchmark.torture.command

tune: $(LAYER)/tools $(MEASURES) ## Find the best settings for this machine (LATENCY_MS=50, IMAGES=, MINUTES=5)
	$(RUN) measure.tune

prove: $(LAYER)/tools $(LAYER)/bench ##+ On a GPU: run everything and write a report to attach to an issue
	$(RUN) measure.prove

##@ Operate

status: $(LAYER)/tools ## Show whether the server answers, and what it serves
	$(RUN) operate.status

keys: $(LAYER)/tools ## API keys of clients on other machines: list, ADD=ann (RATE=10 a second), REVOKE=ann
	$(RUN) --any-layout operate.keys

logs: $(LAYER)/tools ## Show the log of Triton, keeper and door: SINCE=5m (FOLLOW=1)
	$(RUN) --any-layout operate.logs

scale: $(LAYER)/tools ##+ Start more servers, or stop some, where a flavour has several: REPLICAS=4
	$(RUN) operate.scale

drift: $(LAYER)/tools ##+ Show how far each version's answers have moved (NEW=1: the last 1,000 are the reference)
	$(RUN) operate.drift

trace: $(LAYER)/tools ##+ Show where the time of one request went: IMG=photo.jpg, or what else the pipeline takes (MODEL=)
	$(RUN) operate.trace

down: $(LAYER)/tools ## Stop the server
	$(RUN) --any-layout serve.down

images: $(LAYER)/tools ##+ Build the images of the CPU flavour (PUSH=registry.example/team: push and sign them; TAG=)
	$(RUN) operate.images

prune: $(LAYER)/tools ##+ Show what takes room in build/, and remove what is old (YES=1, KEEP_VERSIONS=3, DAYS=7)
	$(RUN) operate.prune

clean: $(LAYER)/tools ##+ Stop the server and remove everything that was built
	$(RUN) --any-layout operate.clean

##@ Work on the bundle

check: $(if $(ARGS),,lint) $(LAYER)/check ## Lint, types, layers and unit tests, without a server (ARGS="-k exif")
	@$(PYTEST) tests/unit tests/client $(wildcard kinds/*/tests/unit extensions/*/tests/unit) $(or $(ARGS),-m "not long and not rare")

test: $(if $(ARGS),,lint) $(LAYER)/test $(APART) ## The same, plus the main pipeline and the door on a real server (ARGS="-k exif")
	@$(PYTEST) $(or $(ARGS),-m "not long and not rare")

test-all: test ##+ The same, plus the long tests: rollouts under load, S3 faults, the GPU rehearsal
	@$(PYTEST) $(LONG)

test-changed: test ##+ The same, plus the long tests of what has changed: SINCE=main
	@tests="$$(.venv/bin/python -m tests.touched $(or $(SINCE),main))" && { [ -z "$$tests" ] || \
		$(PYTEST) $(LONG) $$tests || [ $$? = 5 ]; }

test-rare: $(LAYER)/test $(APART) ##+ The rest: a swarm, a pod, packs, upgrades, and end-to-end tests again, in containers
	@$(PYTEST) -n 3 -m rare

pins: $(LAYER)/check ##+ Renew the versions and hashes of Python packages (ONLY=pillow,numpy)
	$(RUN) pins

lint: $(LAYER)/check
	@git rev-parse 2>/dev/null || { echo "error: lint asks git which files there are; run it in a clone" >&2; exit 1; }
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/python -m mypy
	.venv/bin/python .venv/bin/lint-imports --no-logo
	.venv/bin/shellcheck $$(git grep --untracked -lE '^#!.*sh$$')
	.venv/bin/hadolint $$(git ls-files '*Dockerfile')
