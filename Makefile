# make demo: a small real model answers a question.   make test: all tests.   make check: style and types.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DEMO_DIR ?= models
DEMO_MODEL := $(DEMO_DIR)/SmolLM2-135M-Instruct.Q4_1.gguf
QUESTION ?= What is the capital of France, and what is it known for?
PIP := $(BIN)/python -m pip --disable-pip-version-check -q

.PHONY: demo test check lint clean

# Installs again only when the project's requirements change.
$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -e .
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(PIP) install -e '.[dev]'
	touch $@

$(DEMO_MODEL): | $(VENV)/.installed
	$(BIN)/python scripts/get_demo_model.py --output=$@

demo: $(VENV)/.installed $(DEMO_MODEL)
	@$(BIN)/moejax-generate --model=$(DEMO_MODEL) --chat --prompt="$(QUESTION)" --temperature=0 --num_tokens=160

test: check
	$(BIN)/python -m pytest -n 2 $(PYTEST_FLAGS)

check: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

clean:
	rm -rf $(VENV) build dist *.egg-info
