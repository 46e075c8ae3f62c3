# `make demo` and `make test` need only Python 3.11 or newer, git and make.
PYTHON ?= python3
VENV := .venv
INPUTS := pyproject.toml constraints.txt

.PHONY: demo test check docs accuracy bench gpu-records
.NOTPARALLEL:

demo: $(VENV)/demo.stamp
	$(VENV)/bin/dpsim run quickstart -o out/quickstart

test: $(VENV)/test.stamp
	$(VENV)/bin/python -m pytest -n 2 --dist loadfile -q

check: $(VENV)/test.stamp
	$(VENV)/bin/ruff check
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(VENV)/bin/python -m pytest -q --doctest-modules dpsim
	$(VENV)/bin/python validation/accuracy.py --check --jobs 2

# What is generated from the code: the scenario reference, the picture of the rooms, and the site in
# out/site, whose tools have an environment of their own.
docs: $(VENV)/test.stamp $(VENV)-docs/docs.stamp
	$(VENV)/bin/python docs/_generate.py
	$(VENV)/bin/python docs/_house.py --write
	$(VENV)/bin/python docs/_site.py out/site-pages
	$(VENV)-docs/bin/mkdocs build --strict -q -f out/site-pages/mkdocs.yml -d ../site

accuracy: $(VENV)/test.stamp
	$(VENV)/bin/python validation/accuracy.py --jobs 2

# Eight minutes on a machine with a GPU; RECORDER=python3 takes a Python whose torch sees it.
RECORDER ?= $(VENV)/bin/python
gpu-records: $(VENV)/test.stamp
	PYTHONPATH=$(CURDIR) $(RECORDER) validation/gpu_records.py $(RECORDS)

# Many minutes; BENCH="--only quickstart,step-1024" takes some lines, BENCH=--list names them.
bench: $(VENV)/test.stamp
	$(VENV)/bin/python benchmarks/run.py $(BENCH)

$(VENV)-docs/docs.stamp: pyproject.toml
	$(PYTHON) -m venv --clear $(VENV)-docs
	$(VENV)-docs/bin/python -m pip install --quiet "mkdocs-material>=9.5"
	touch $@

$(VENV)/created.stamp:
	$(PYTHON) -m venv --clear $(VENV)
	touch $@

$(VENV)/demo.stamp: $(VENV)/created.stamp $(INPUTS)
	$(VENV)/bin/python -m pip install --quiet -c constraints.txt -e .
	touch $@

$(VENV)/test.stamp: $(VENV)/created.stamp $(INPUTS)
	$(VENV)/bin/python -m pip install --quiet -c constraints.txt -e '.[test]'
	touch $@
