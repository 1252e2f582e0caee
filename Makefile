# The tasks of a developer. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTEST := .venv/bin/python -m pytest

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

.PHONY: setup
setup: ## Make .venv with the pinned tools
	@tools/setup.sh

.PHONY: lock
lock: setup ## Lock what requirements/*.in name, with hashes (ARGUMENTS=--upgrade raises everything)
	@tools/lock.sh $(ARGUMENTS)

.PHONY: demo
demo: ## Run the main job on a lab of three virtual GPU hosts
	@tools/demo.sh up

.PHONY: demo-down
demo-down: ## Remove every trace of the demo's lab
	@tools/demo.sh down

.PHONY: demo-cluster
demo-cluster: ## Show the whole with real nodes: site, push, Argo CD, pods with their slices (a first build takes 35 minutes)
	@tools/demo-cluster.sh up

.PHONY: demo-cluster-down
demo-cluster-down: ## Remove every trace of that
	@tools/demo-cluster.sh down

.PHONY: lab-up
lab-up: setup ## Boot the lab hosts and write build/lab/inventory.yml
	@tests/lab/lab up

.PHONY: lab-down
lab-down: ## Stop the lab hosts and remove their files
	@tests/lab/lab down

.PHONY: cluster-up
cluster-up: setup ## Boot the demo's hosts as nodes of a real Kubernetes cluster (a first build takes 25 minutes)
	@tests/lab/lab up --name cluster --nodes

.PHONY: cluster-down
cluster-down: ## Remove every trace of that cluster
	@tests/lab/lab down --name cluster

.PHONY: test
test: ## Run the tests, 45 minutes on two cores (make TIERS="unit lint" test for a part, WHOLE=yes for all of that part)
	@tools/test.sh $(TIERS)

.PHONY: test-all
test-all: ## Run everything in full: what runs by name only, too, and whole matrices (hours)
	@tools/test.sh --all

.PHONY: unit
unit: setup ## Run the unit tests (a minute)
	@env -u PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX="$(CURDIR)/build/pycache" $(PYTEST) tests/unit -n $$(nproc) --dist worksteal

.PHONY: generate
generate: setup ## Write what follows from the roles' argument specifications: defaults, READMEs, options of modules
	@.venv/bin/python tools/generate.py

.PHONY: golden
golden: setup ## Write the plans of the corpus anew (tests/unit/golden/plans.txt, docs/drift.md); the commit says why they differ
	@RECORD_PLANS=1 $(PYTEST) tests/unit/golden/test_plans.py tests/unit/golden/test_drift.py

.PHONY: lint
lint: ## Run ruff, mypy, yamllint, ansible-lint
	@tools/test.sh lint

.PHONY: sanity
sanity: setup ## Run ansible-test sanity
	@tools/sanity.sh

.PHONY: test-gpu
test-gpu: gpu-bundle ## Check this host, which has a real GPU, without changing its settings: build/gpu-report/report.html
	@build/gpu-bundle/run.sh build/gpu-report

.PHONY: gpu-bundle
gpu-bundle: setup ## Make build/gpu-bundle, whose run.sh checks hosts with GPUs that have neither network nor registries
	@.venv/bin/python tools/gpu-bundle/build.py

.PHONY: molecule
molecule: ## Run Molecule: SCENARIO=mig (without: list them), on lab hosts, or on yours with INVENTORY=my-hosts.yml; SCENARIO=read-only for that set
	@tools/molecule.sh $(if $(INVENTORY),--inventory "$(INVENTORY)") $(or $(SCENARIO),--list)

.PHONY: bench
bench: setup ## Run the benchmarks and write build/bench.json
	@.venv/bin/python tests/bench/run.py

.PHONY: bench-fleet
bench-fleet: setup ## Measure the controller with HOSTS=10000 hosts that answer at once (an hour with two cores; 1,000 and PLAYBOOKS="site plan verify": 8 minutes)
	@.venv/bin/python tests/bench/bench_fleet.py $(or $(HOSTS),10000) $(PLAYBOOKS)

.PHONY: docs
docs: ## Build the documentation site into build/docs/html and check its links
	@tools/docs.sh

.PHONY: screenshots
screenshots: ## Make the pictures of the documentation anew (docs/assets); installs a headless browser where there is none
	@tools/screenshots.sh

.PHONY: build
build: setup ## Build the collection's tarball into build/
	@tools/tarball.sh build

.PHONY: release
release: ## Run test-all and make a release below build/release: VERSION=1.2.0 (SIGN=KEYID signs the checksums; TESTED=yes: this commit passed it; WRITE=yes also puts version and changelog into the working tree)
	@tools/release.sh "$(VERSION)" $(if $(WRITE),--write) $(if $(SIGN),--sign "$(SIGN)")

.PHONY: clean
clean: ## Remove what the other targets made (not the lab: make demo-down)
	@rm -rf build/galaxy build/sanity build/pycache .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
