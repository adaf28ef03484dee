"""The exposition, read by Prometheus' own parser."""

from __future__ import annotations

import re
import sys
from dataclasses import replace

import pytest

from advisor.export import prometheus
from advisor.export.nodes import nodes
from advisor.metrics import all_metrics
from advisor.metrics.base import Metrics
from advisor.report.quantities import quantities
from advisor.runs.load import load
from profiler.errors import ProfilerError
from profiler.schema import Run
from profiler.store import Writer

parser = pytest.importorskip("prometheus_client.parser")


@pytest.fixture
def families(exported):
    text = prometheus.text(*exported(), 'run "1"\n\\')
    return {family.name: family for family in parser.text_string_to_metric_families(text)}


def value(family, **labels):
    (found,) = [s.value for s in family.samples if labels.items() <= s.labels.items()]
    return found


def test_metrics_match_report_with_their_descriptions(families, folder):
    for quantity in quantities(Metrics(load(folder))):
        if quantity.unit not in prometheus.BASE:
            continue
        if quantity.value is None:
            assert prometheus.name(quantity.name, quantity.unit) not in families
            continue
        family = families[prometheus.name(quantity.name, quantity.unit)]
        assert family.type == "gauge"
        assert family.documentation == quantity.meaning
        assert value(family) == pytest.approx(quantity.value * prometheus.BASE[quantity.unit][1])


def test_steps_and_phases_are_counted_by_rank(families):
    steps = {
        (s.name, s.labels["node"], s.labels["rank"]): s.value for s in families["profile_train_step_seconds"].samples
    }
    phases = families["profile_train_phase_seconds"]

    assert families["profile_train_step_seconds"].type == "summary"
    assert steps["profile_train_step_seconds_count", "a", "0"] == 51
    assert steps["profile_train_step_seconds_sum", "b", "2"] == pytest.approx(5.0)
    assert phases.type == "counter"
    assert {sample.name for sample in phases.samples} == {"profile_train_phase_seconds_total"}
    assert value(phases, rank="0", phase="forward") == pytest.approx(1.5)
    assert value(phases, rank="0", phase="evaluation") == pytest.approx(0.9)
    assert value(families["profile_train_batches"], rank="1") == 50


def test_unmeasured_metrics_are_absent(families):
    phases = {sample.labels["phase"] for sample in families["profile_train_phase_seconds"].samples}

    assert phases & {"h2d", "sync", "communication", "gc"} == set()
    assert "profile_train_h2d_fraction" not in families


def test_labels_have_no_control_characters(tmp_path, folder):
    writer = Writer(tmp_path / "live", "a")
    writer.add(replace(load(folder).runs[0], host="h\x1b[2J", version="\u202e1"))
    writer.commit()
    metrics = Metrics(load(tmp_path / "live"))
    text = prometheus.text(nodes(tmp_path / "live", metrics.profile), metrics, "run\x1b[2J")
    writer.close()

    assert "run_info" in text
    assert not set("\x1b\u202e") & set(text)


def test_unfinished_run_has_no_duration_or_exit_status(tmp_path, folder):
    writer = Writer(tmp_path / "live", "a")
    ended = load(folder).runs[0]
    writer.add(
        Run(
            **{name: getattr(ended, name) for name in Run.__slots__}
            | {"outcome": "running", "duration": None, "exit_status": None}
        )
    )
    writer.commit()
    text = prometheus.text((), Metrics(load(tmp_path / "live")), "live")
    writer.close()

    assert 'profile_train_run_active{run="live"} 1.0' in text
    assert "run_duration_seconds" not in text
    assert "exit_status" not in text


def test_names_from_outside_are_escaped(families):
    assert {s.labels["run"] for family in families.values() for s in family.samples} == {'run "1"\n\\'}


def test_metric_names_are_unique_and_valid():
    named = [prometheus.name(one.name, one.unit) for one in all_metrics() if one.unit in prometheus.BASE]

    assert len(set(named)) == len(named)
    assert all(re.fullmatch("profile_train_[a-z][a-z0-9_]*", name) for name in named)
    assert not [name for name in named if name.endswith(("_count", "_sum", "_bucket", "_total", "_us", "_hours"))]
    assert {one.name for one in all_metrics() if one.unit and one.unit not in prometheus.BASE} == {"kwh"}


def test_other_units_become_base_units():
    units = {one.name: one.unit for one in all_metrics()}

    assert prometheus.name("median_kernel_us", units["median_kernel_us"]) == "profile_train_median_kernel_seconds"
    assert prometheus.name("gpu_hours", units["gpu_hours"]) == "profile_train_gpu_seconds"
    assert prometheus.name("step_time_mean", units["step_time_mean"]) == "profile_train_step_time_mean_seconds"
    assert prometheus.name("comm_bytes", units["comm_bytes"]) == "profile_train_comm_bytes"


def test_without_its_library_it_says_what_to_install(exported, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)

    with pytest.raises(ProfilerError, match="needs prometheus-client"):
        prometheus.text(*exported(), "r")
