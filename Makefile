# Every command of the bundle; `make` alone lists them. Settings go behind the command
# (make up ARCH=resnet18) or into .env; .env.example explains each.

RUN := @.venv/bin/python -m scripts.commands
PYTEST := .venv/bin/python -m pytest

# As they were typed: make would take the $ in a file's name or a text for one of its variables.
$(foreach name,IMG IN TEXT,$(eval override export $(name) := $$(value $(name))))

# Whoever sets it would have every command compile anew all that it imports: seconds each.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help version demo doctor up classify add-model remove-model sentiment similar bench rivals \
	torture tune publish rollout rollback history s3-check s3-up s3-down status models load unload logs \
	down clean check test test-all lint prove

# A layer of the environment, installed before the command that names it and whenever requirements/
# has changed since. What only a few runs of a command need, that command installs itself.
LAYER := .venv/layers
$(LAYER)/%: $(wildcard requirements/*.txt)
	@python3 scripts/bootstrap.py $*
APART := $(LAYER)/perf_analyzer $(LAYER)/minilm

##@ First steps

help: ## This list
	@[ ! -t 1 ] || { bold='\033[1m'; plain='\033[0m'; }; \
	awk -F ':.*## ' -v bold="$$bold" -v plain="$$plain" \
		'/^##@ / {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z0-9-]+:.*## / {printf "  %smake %-12s%s %s\n", bold, $$1, plain, $$2}' Makefile

demo: $(LAYER)/tools ## The whole walk at once: a network, a server, a picture, an answer
	$(RUN) demo

doctor: $(LAYER)/tools ## Find what usually goes wrong, each with its fix
	$(RUN) doctor

version: ## The bundle's version
	@sed -n 's/^__version__ = "\(.*\)"$$/\1/p' client/bundle_client/__init__.py

##@ Serve and ask

up: $(LAYER)/tools ## Bring the server up (exports the network first, where that is needed)
	$(RUN) up

classify: $(LAYER)/tools ## Name what is on a picture: IMG=photo.jpg (TOP=5, JSON=1, MODEL=places, cascade or your own)
	$(RUN) ask

sentiment: export MODEL := $(or $(MODEL),sentiment)
sentiment: $(LAYER)/tools ## Classify the sentiment of a text: TEXT="What a day!" (JSON=1)
	$(RUN) ask

similar: $(LAYER)/tools ## Find the pictures of a folder that are most like one: IMG=photo.jpg IN=photos (TOP=5, JSON=1)
	$(RUN) similar

add-model: $(LAYER)/tools $(LAYER)/adopt ## Serve your own network: NAME=birds ONNX=birds.onnx LABELS=birds.txt (or ARCH=, WEIGHTS=)
	$(RUN) add_model

remove-model: $(LAYER)/tools ## Remove a network of yours: NAME=birds (without NAME: which there are)
	$(RUN) remove_model

models: $(LAYER)/tools ## The models that the server knows: version, state, and what each was made from
	$(RUN) models

load: $(LAYER)/tools ## Load a model of the repository, or what has changed of it: TRITON_MODEL=resnet50_onnx
	$(RUN) load

unload: $(LAYER)/tools ## Unload a model that no pipeline needs: TRITON_MODEL=another
	$(RUN) unload

##@ Versions

publish: $(LAYER)/tools ## Make a new version beside the live one (ARCH=, WEIGHTS=, PRECISION=)
	$(RUN) publish

rollout: $(LAYER)/tools ## Switch to it with no downtime; roll back automatically (CANARY=10, VERSION=, ANYWAY=1)
	$(RUN) rollout

rollback: $(LAYER)/tools ## Return to the version that was live before, the same way
	$(RUN) rollback

history: $(LAYER)/tools ## Which version was live when, and what became of each
	$(RUN) history

##@ Measure

bench: $(LAYER)/tools $(LAYER)/bench $(LAYER)/perf_analyzer ## How fast it answers, and where the time goes: a report (MODEL=, QUICK=1, IMAGES=, TEXTBOOK=1, COMPARE=)
	$(RUN) bench

rivals: $(LAYER)/tools $(LAYER)/rivals ## Compare with the textbook recipe and other servers (QUICK=1, IMAGES=, ONLY=)
	@.venv/bin/python -m benchmark.compare

torture: $(LAYER)/tools ## Harm a server of its own in every known way; does it come back? (QUICK=1)
	@.venv/bin/python -m benchmark.torture

tune: $(LAYER)/tools $(LAYER)/bench $(LAYER)/perf_analyzer ## Find the best settings for this machine, into .env (LATENCY_MS=50, IMAGES=, MINUTES=5, STOP=1)
	$(RUN) tune

prove: $(LAYER)/tools $(LAYER)/bench ## On a GPU: the whole flow, and a report of what works, to attach to an issue
	$(RUN) prove

##@ Care

status: $(LAYER)/tools ## Does it answer, what does it serve, what was that made from
	$(RUN) status

logs: $(LAYER)/tools ## The server's log
	$(RUN) logs

s3-check: $(LAYER)/tools $(LAYER)/s3 ## Can the repository on S3 be reached, and who may do what there
	$(RUN) s3_check

s3-up: $(LAYER)/tools ## Start an S3 server in a container, to try REPOSITORY=s3://… with
	$(RUN) s3_server up

s3-down: $(LAYER)/tools ## Stop that S3 server; what it holds stays
	$(RUN) s3_server down

down: $(LAYER)/tools ## Stop the server
	$(RUN) down

clean: $(LAYER)/tools ## Stop it, and remove all that was made here
	$(RUN) clean

##@ Work on the bundle

check: $(if $(ARGS),,lint) $(LAYER)/check ## Lint, types, layers and unit tests, without a server (ARGS="-k exif")
	@$(PYTEST) tests/unit tests/client $(ARGS)

test: $(if $(ARGS),,lint) $(LAYER)/test $(APART) ## That, and every pipeline end to end on a real server (ARGS="-k exif")
	@$(PYTEST) $(or $(ARGS),-m "not long")

test-all: test ## That, and the long ones: rollouts under load, S3's faults, rehearsals, rivals
	@$(PYTEST) -m long

lint: $(LAYER)/check
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	.venv/bin/shellcheck $$(git grep --untracked -lE '^#!.*sh$$')
	.venv/bin/hadolint $$(git ls-files '*Dockerfile')
