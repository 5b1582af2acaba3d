# Every command of the bundle; `make` alone lists them. Settings go behind the command
# (make up ARCH=resnet18) or into .env; .env.example explains each.

RUN := .venv/bin/python -m scripts.commands
TOOLS := @python3 scripts/bootstrap.py tools

.DEFAULT_GOAL := help
.PHONY: help demo doctor up classify add-model sentiment similar bench rivals tune publish rollout \
	rollback history s3-check s3-up s3-down status models load unload logs down clean test

help: ## This list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  \033[1mmake %-11s\033[0m %s\n", $$1, $$2}' Makefile

demo: ## The whole walk at once: a network, a server, a picture, an answer
	$(TOOLS)
	@$(RUN).demo

doctor: ## Finds what usually goes wrong, each with its fix
	$(TOOLS)
	@$(RUN).doctor

up: ## Bring the server up (exports the network first, where that is needed)
	$(TOOLS)
	@$(RUN).up

classify: ## What is on a picture: make classify IMG=photo.jpg (TOP=5, JSON=1, MODEL=places, cascade or your own)
	$(TOOLS)
	@$(RUN).classify

add-model: ## Serve your own network: NAME=birds ONNX=birds.onnx LABELS=birds.txt (or ARCH=, WEIGHTS=)
	$(TOOLS) adopt
	@$(RUN).add_model

sentiment: ## How a text is meant: make sentiment TEXT="What a day!" (JSON=1)
	$(TOOLS)
	@$(RUN).sentiment

similar: ## Which pictures of a folder are most like one: make similar IMG=photo.jpg IN=photos (TOP=5, JSON=1)
	$(TOOLS)
	@$(RUN).similar

bench: ## How fast it answers, and where the time goes: a report (MODEL=, QUICK=1, IMAGES=, TEXTBOOK=1, COMPARE=)
	$(TOOLS) bench perf_analyzer
	@$(RUN).bench

rivals: ## Compare with the textbook recipe and other servers (QUICK=1, IMAGES=, ONLY=)
	$(TOOLS) rivals
	@.venv/bin/python -m benchmark.compare

tune: ## Find the best settings for this machine, into .env (LATENCY_MS=50, IMAGES=, MINUTES=5)
	$(TOOLS) bench perf_analyzer
	@$(RUN).tune

publish: ## Make a new version, beside the one that serves (ARCH=, WEIGHTS=, PRECISION=)
	$(TOOLS)
	@$(RUN).publish

rollout: ## Put it in the place of the old one, while that serves; back by itself (CANARY=10, VERSION=)
	$(TOOLS)
	@$(RUN).rollout

rollback: ## Return to the version that served before, the same way
	$(TOOLS)
	@$(RUN).rollback

history: ## Which version serves since when, and what became of each
	$(TOOLS)
	@$(RUN).history

s3-check: ## Can the repository on S3 be reached, and who may do what there
	$(TOOLS) s3
	@$(RUN).s3_check

s3-up: ## Start an S3 server of one's own in a container, to try REPOSITORY=s3://… with
	$(TOOLS)
	@$(RUN).s3_server up

s3-down: ## Stop that S3 server; what it holds stays
	$(TOOLS)
	@$(RUN).s3_server down

status: ## Does it answer, what does it serve, what was that made from
	$(TOOLS)
	@$(RUN).status

models: ## The models that the server knows: version, state, and what each was made from
	$(TOOLS)
	@$(RUN).models

load: ## Load a model of the repository, or what has changed of it: make load MODEL=resnet50_onnx
	$(TOOLS)
	@$(RUN).load

unload: ## Unload a model that no picture needs: make unload MODEL=another
	$(TOOLS)
	@$(RUN).unload

logs: ## The server's log
	$(TOOLS)
	@$(RUN).logs

down: ## Stop the server
	$(TOOLS)
	@$(RUN).down

clean: ## Stop it, and remove all that was made here
	$(TOOLS)
	@$(RUN).clean

test: ## All tests and checks (what needs Docker is skipped where there is none)
	@python3 scripts/bootstrap.py tools serve export bench perf_analyzer minilm test
	@.venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/mypy && .venv/bin/lint-imports
	@.venv/bin/python -m pytest $(ARGS)
