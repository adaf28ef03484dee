"""Questions about a run's memory: any setting that was measured, and for the rest the reason."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_runs import ADAM, FLAGS, GB, LOADER, MODEL, cpu_metrics, gpu_metrics

from advisor.metrics import input as data
from advisor.metrics import memory, settings
from advisor.metrics.base import Missing
from advisor.report.anatomy import what_if
from profiler.schema import MemoryFact

PEAK = MemoryFact(
    id=0,
    parameters=4 * GB,
    gradients=4 * GB,
    optimizer=8 * GB,
    allocated_peak=62 * GB,
    reserved_peak=63 * GB,
)
FP32 = replace(MODEL, dtypes={"float32": 10**8}, bytes=4 * GB, parameters=10**9, block_bytes=GB // 8)


def run(changes=None):
    known = {memory.memory_peak: PEAK, settings.model: FP32, settings.flags: replace(FLAGS, autocast=False)}
    return gpu_metrics({**known, **(changes or {})})


def values(asked, name):
    """Return the choices of the control with that name."""
    (control,) = (control for control in asked.controls if control.name == name)
    return [value for value, _ in control.choices]


def test_fully_measured_run_has_all_what_if_controls():
    asked = what_if(run())

    assert asked.fixed == ()
    assert asked.anatomy.activations == 46 * GB
    assert asked.anatomy.rest == pytest.approx(2 * GB)  # a fifth of 80 GB is free
    assert asked.anatomy.parts(asked.anatomy.now).total == pytest.approx(64 * GB)
    assert asked.largest_batch == 64
    assert values(asked, "stage") == ["0", "1", "2", "3"]
    assert values(asked, "every") == ["", "1", "2", "3", "4", "6", "8"]
    assert values(asked, "moments") == ["adamw", "adamw8bit", "lion", "momentum", "sgd"]
    assert values(asked, "autocast") == ["", "yes"]


def test_sharded_run_at_its_own_settings_reproduces_measurement():
    sharded = replace(FLAGS, autocast=False, fsdp=True, zero_stage=3)
    asked = what_if(run({settings.flags: sharded, settings.world_size: 4}))
    parts = asked.anatomy.parts(asked.anatomy.now)

    assert (asked.anatomy.now.stage, asked.anatomy.now.ranks) == (3, 4)
    assert asked.anatomy.states.total == 4 * 16 * GB
    assert parts.gathered == 2 * (GB // 8)
    assert parts.total == pytest.approx(64 * GB)


def test_states_of_hybrid_sharded_run_are_those_of_one_group():
    sharded = replace(FLAGS, autocast=False, fsdp=True, zero_stage=3)
    hybrid = replace(FP32, data_parallel=8, shards=2)
    asked = what_if(run({settings.flags: sharded, settings.world_size: 8, settings.model: hybrid}))

    assert (asked.anatomy.now.stage, asked.anatomy.now.ranks) == (3, 2)
    assert asked.anatomy.states.total == 2 * 16 * GB
    assert asked.anatomy.parts(asked.anatomy.now).total == pytest.approx(64 * GB)


@pytest.mark.parametrize(
    ("changes", "begin"),
    [
        ({data.loader: replace(LOADER, batch_size=None)}, "Batch size: the loader's batch size is unknown."),
        ({settings.model: replace(FP32, blocks=0)}, "Activation checkpointing: the model has no repeated blocks."),
        ({settings.model: replace(FP32, block=None)}, "ZeRO stage 3: the model has no repeated blocks"),
        ({settings.flags: replace(FLAGS, autocast=False, checkpointing=True)}, "Activation checkpointing: it is"),
        ({settings.flags: FLAGS}, "Precision: the run already uses 16 bits."),
        ({settings.model: replace(FP32, dtypes={"bfloat16": 10**9})}, "Optimizer: the state of other optimizers"),
        ({settings.optimizer: replace(ADAM, name="Shampoo")}, "Optimizer: the state size of Shampoo is unknown"),
        ({settings.world_size: 8}, "GPUs and ZeRO: the ranks do not train one model"),
        ({settings.world_size: 8, settings.flags: replace(FLAGS, fsdp=True)}, "GPUs and ZeRO: whether FSDP shards"),
    ],
)
def test_unmeasured_control_is_fixed_with_a_reason(changes, begin):
    assert [reason for reason in what_if(run(changes)).fixed if reason.startswith(begin)]


def test_control_without_measurement_is_left_out():
    asked = what_if(run({settings.world_size: 8, settings.optimizer: Missing("No optimizer", "Wait.")}))

    assert {control.name for control in asked.controls} == {"every", "autocast"}
    assert asked.anatomy.states.total == 16 * GB


def test_rest_is_allocator_cache_without_driver_memory():
    asked = what_if(run({memory.mem_headroom: Missing("No driver", "Install it.")}))

    assert asked.anatomy.rest == 1 * GB


def test_what_if_is_missing_without_gpu():
    with pytest.raises(Missing):
        what_if(cpu_metrics(phases={}))
