"""Sick and healthy GPU runs, as metrics: which advice comes first, and which must not appear."""

from dataclasses import replace

import pytest
from gpu_runs import LOADER, a_gpu, gpu_metrics
from gpu_truth import (
    FP32,
    FP32_A100,
    HOT,
    IN_NO_TABLE,
    OUT_OF_MEMORY,
    RESNET,
    ROWS,
    UNFUSED,
    WAITING,
    Row,
    above_information,
)

from advisor.judging.judge import Outcome, judge
from advisor.metrics import gpu
from advisor.metrics import input as data
from advisor.rules.base import Confidence, Severity


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_row(row: Row):
    judgment = judge(gpu_metrics(row.changes, phases=row.phases))
    assert [verdict.why for verdict in judgment.verdicts if verdict.outcome is Outcome.CRASHED] == []
    fired = {finding.rule.id for finding in judgment.findings}
    assert fired & row.absent == set()
    assert (above_information(judgment) or [None])[0] == row.first
    if row.then:
        assert above_information(judgment) == [row.first, *row.then]
    if row.speedup:
        alone = judgment.findings[0].alone
        assert alone is not None
        assert row.speedup[0] <= 1 / (1 - alone.expected) <= row.speedup[1]
    if row.memory:
        assert judgment.findings[0].advice.memory == pytest.approx(row.memory)


def test_throttling_comes_before_host_waits_on_hot_gpu():
    judgment = judge(gpu_metrics({**HOT, gpu.gpu_busy_fraction: 0.77}, phases=WAITING))
    assert above_information(judgment) == ["gpu-throttled"]
    waiting = next(finding for finding in judgment.findings if finding.rule.id == "host-sync-item")
    assert waiting.in_plan is None, "what it would bring on a cool GPU is not known"


def test_precision_then_optimizer():
    phases = {"forward": 0.28, "backward": 0.56, "optimizer": 0.11}
    judgment = judge(gpu_metrics({**FP32_A100, **UNFUSED}, phases=phases))
    assert above_information(judgment) == ["precision-bf16", "optimizer-fused"]
    alone, in_plan = judgment.findings[1].alone, judgment.findings[1].in_plan
    assert alone is not None
    assert in_plan is not None
    assert in_plan.expected > alone.expected, "the same seconds of a shorter step"


def test_bf16_is_an_action_on_geforce():
    judgment = judge(gpu_metrics(RESNET))
    assert {finding.rule.id: finding.severity for finding in judgment.findings}["precision-bf16"] is Severity.ACTION


def test_a_derived_peak_is_trusted_less_than_a_data_sheet():
    rate = {gpu.achieved_matmul_flops: 16e12}
    runs = [judge(gpu_metrics({**changes, **rate})) for changes in (FP32, IN_NO_TABLE)]
    sheet, derived = (judgment.findings[0].advice.confidence for judgment in runs)
    assert (sheet, derived) == (Confidence.ROOFLINE, Confidence.EMPIRICAL)


def test_out_of_memory_advice_comes_before_speed_advice():
    judgment = judge(gpu_metrics({**OUT_OF_MEMORY, **FP32, gpu.device: a_gpu("NVIDIA A10", (8, 6), 24)}))
    assert above_information(judgment)[:2] == ["ckpt-every-n", "precision-bf16"]


def test_a_starved_gpu_gains_nothing_from_precision_alone():
    phases = {"data_wait": 0.4, "forward": 0.2, "backward": 0.34}
    changes = {**FP32_A100, data.loader: replace(LOADER, num_workers=1), data.worker_efficiency: 1.0}
    judgment = judge(gpu_metrics(changes, phases=phases))
    precision = next(finding for finding in judgment.findings if finding.rule.id == "precision-bf16")
    assert precision.alone is not None
    assert precision.alone.expected == 0
