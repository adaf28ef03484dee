"""Every real trace that is present: a report in every form, in which the parts add up."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from traces_real import PATHS

from advisor.publish import report_of
from advisor.report.render import html, markdown, result_json
from advisor.runs.traces import load as load_traces
from profiler.importers.analysis import analyze

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "result.schema.json").read_text())
PHASES = ("data_wait", "h2d", "forward", "backward", "optimizer", "communication", "sync", "other")

ADVICE = {
    "hta_df_index_resolver": ["launch-bound-graphs", "comm-overlap"],
    "hta_nccl": ["compile-model", "host-stall"],
    "hta_negative_queue_rank0": ["precision-bf16", "comm-overlap"],
    "hta_sampled_rank-0": ["host-stall"],
    "hta_sampled_rank-1": ["host-stall"],
    "tracelens_b200_eager": ["launch-bound-graphs", "host-stall"],
    "tracelens_h100_bert": ["launch-bound-graphs"],
    "tracelens_h100_timesformer": ["sdpa-flash"],
    "tracelens_mi300_bert": ["launch-bound-graphs"],
}
"""What an expert would advise on a trace, in order, from its kernels and gaps. The other traces show the start of a
program, a few kernels or nothing to change."""

pytestmark = pytest.mark.skipif(not PATHS, reason="PROFILE_TRAIN_TRACES is not a folder with traces")


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_phases_and_parts_of_real_traces_add_up(path):
    found = analyze(path)
    fact = found.fact

    for step in found.steps:
        assert sum(getattr(step, phase) or 0.0 for phase in PHASES) == pytest.approx(step.duration)
    if fact.parts:
        assert sum(fact.parts.values()) == pytest.approx(fact.seconds)
        assert 0 <= (fact.overlap or 0) <= 1
        assert sum(fact.critical.values()) > 0


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_real_trace_is_reported_in_every_form(path):
    report = report_of(load_traces([path]))

    jsonschema.validate(json.loads(result_json.render(report)), SCHEMA)
    assert html.render(report)
    assert markdown.render(report)
    assert report.checks("crashed") == ()
    assert [item.rule for item in report.advice if item.severity != "info"] == ADVICE.get(path.name.split(".")[0], [])
