.PHONY: unit test lint docs bench style snapshots coverage

unit: # tests that start no process
	pytest -m unit

test: # what .ci/run runs
	pytest -n auto -m "not slow"

lint:
	ruff check
	ruff format --check
	codespell
	mypy

docs: # generated pages, then the site in build/site
	python -m advisor.manual
	mkdocs build

bench: # what recording costs a step
	PYTHONPATH=. python benchmarks/overhead.py

style: # counts for docs/contributing/style.md
	python .ci/style.py

snapshots: # tests/snapshots: what users read
	PROFILE_TRAIN_SNAPSHOTS=write pytest -n 0 -q -m unit tests/advisor tests/profiler -k test_snapshot_of

coverage: # a report, not a bar; without what runs in the programs that tests start
	coverage run -m pytest -m unit
	coverage report --skip-covered --sort=cover
	coverage html
