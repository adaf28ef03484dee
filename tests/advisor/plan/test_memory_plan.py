"""What fits: memory compared with published and hand-computed numbers, and the smallest change. GB is 1e9 bytes."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.models.activations import Layer
from advisor.plan import advice
from advisor.plan.activations import Activations, every, measured, of_shape
from advisor.plan.cluster import Cluster, GpuKind
from advisor.plan.memory import MemoryPlan, of_peaks
from advisor.plan.model import Model
from advisor.plan.placement import Offload, Placement, account
from profiler.errors import ProfilerError

GB = 1e9
GIB = 1024**3


def cluster(gpus=8, memory=24 * GIB, **more) -> Cluster:
    return Cluster(gpus=gpus, device=GpuKind("as given", memory), **more)


def planned(parameters=1.5e9, *, gpus=8, memory=24 * GIB, optimizer="adamw", precision="bf16", unit=None, **more):
    on = {name: more.pop(name) for name in ("host", "reserve", "per_node") if name in more}
    model = Model(parameters=parameters, optimizer=optimizer, precision=precision, largest_unit=unit)
    return MemoryPlan(model=model, cluster=cluster(gpus, memory, **on), **more)


def totals(plan: MemoryPlan) -> list[float]:
    return [one.states.total / GB for one in plan.accounts if one.placement.offload is Offload.NOTHING]


@pytest.mark.parametrize(
    ("parameters", "gpus", "expected"),
    [(1.5e9, 8, (24, 8.25, 5.625, 3.0)), (7.5e9, 64, (120, 31.4, 16.6, 1.875))],
)
def test_zero_by_stage_with_a_master_copy(parameters, gpus, expected):
    """Rajbhandari et al., ZeRO, figure 1."""
    plan = planned(parameters, gpus=gpus, precision="bf16-master")

    assert totals(plan) == pytest.approx(expected, rel=0.003)


def test_zero_1_shards_18_gb_of_optimizer_state_to_2_25():
    plain, sharded = planned(precision="bf16-master").accounts[:2]

    assert plain.states.optimizer / GB == pytest.approx(18)
    assert sharded.states.optimizer / GB == pytest.approx(2.25)


@pytest.mark.parametrize(
    ("precision", "optimizer", "whole"),
    [
        ("fp32", "adamw", 16),
        ("tf32", "adam", 16),
        ("bf16", "adamw", 16),
        ("fp16", "lion", 12),
        ("bf16-master", "adamw", 16),
        ("pure-bf16", "adamw", 8),
        ("fp32", "adamw-8bit", 10.03),
        ("fp32", "sgd", 8),
        ("fp32", "sgd-momentum", 12),
    ],
)
def test_bytes_per_parameter(precision, optimizer, whole):
    plan = planned(1e9, gpus=1, precision=precision, optimizer=optimizer)

    assert plan.plain.states.total / GB == pytest.approx(whole)
    assert plan.plain.transient == (2e9 if precision in ("bf16", "fp16") else 0)


def test_adafactor_state_is_tiny_and_needs_hidden_size():
    """Rows and columns of a square matrix of 4096: 2 x 4 bytes x 4096 over 4096^2 parameters."""
    model = Model(parameters=4096**2, optimizer="adafactor", precision="fp32", hidden=4096)

    assert model.states.optimizer == pytest.approx(2 * 4 * 4096)
    with pytest.raises(ProfilerError, match="--hidden"):
        Model(parameters=1e9, optimizer="adafactor")


def test_8_bit_moments():
    """8-bit Adam of 3e9 parameters: 24 GB become 6.09."""
    plan = planned(3e9, gpus=1)

    assert plan.plain.states.optimizer / GB == pytest.approx(24)
    assert plan.accounts_in_8_bits[0].states.optimizer / GB == pytest.approx(6.09)


@pytest.mark.parametrize(
    ("placement", "gpu", "host"),
    [
        (Placement(2), 15.93, None),
        (Placement(2, Offload.OPTIMIZER), 5.31, 127.45),
        (Placement(3), 6.09, None),
        (Placement(3, Offload.OPTIMIZER), 0.78, 127.45),
    ],
)
def test_estimates_match_deepspeed(placement, gpu, host):
    """2851M parameters, the largest layer 32M, 8 GPUs, in GiB, from DeepSpeed's documentation."""
    model = Model(parameters=2851e6, precision="bf16-master", largest_unit=32e6)
    found = account(model, cluster(), placement)

    assert found.deepspeed is not None
    assert found.deepspeed.gpu / GIB == pytest.approx(gpu, abs=0.01)
    assert (found.host if host is None else found.host / GIB) == (
        None if host is None else pytest.approx(host, abs=0.05)
    )


def test_offload_agrees_with_deepspeed():
    """2 psi of weights on the GPU, 2 psi / D at stage 3."""
    model = Model(parameters=2851e6, precision="bf16-master", largest_unit=32e6)
    for stage in (2, 3):
        found = account(model, cluster(), Placement(stage, Offload.OPTIMIZER))
        assert found.least == pytest.approx(found.deepspeed.gpu)


def test_llama_8b_under_fsdp():
    """fp32 states over 8 GPUs, and two blocks of 218M gathered in 16 bits: 16.06 + 0.87."""
    found = account(Model(parameters=8.03e9, largest_unit=218e6), cluster(), Placement(3))

    assert found.states.total / GB == pytest.approx(16.06)
    assert found.transient / GB == pytest.approx(0.872)
    assert found.least / GB == pytest.approx(16.93, abs=0.005)


def test_zero_2_under_autocast_has_sharded_fp32_weights_and_gathered_copy():
    found = account(Model(parameters=1.5e9), cluster(), Placement(2))

    assert found.states.total / GB == pytest.approx(3.0)
    assert found.transient / GB == pytest.approx(3.0)


@pytest.mark.parametrize(("per_node", "seconds"), [(1, 0.765), (8, (0.24 + 8 * 0.525) / 8)])
def test_offload_time_depends_on_bus_and_host_bandwidth(per_node, seconds):
    """1.5e9 parameters over 25 GB/s, and over 80 GB/s shared by the GPUs of a node."""
    found = account(Model(parameters=1.5e9), cluster(gpus=per_node), Placement(2, Offload.OPTIMIZER))

    assert found.offload_time == pytest.approx(seconds, abs=0.001)


def test_stage_3_communicates_50_percent_more():
    plan = planned()

    assert plan.accounts[2].sent == plan.accounts[0].sent == pytest.approx(2 * 7 / 8 * 6e9)
    assert plan.accounts[3].sent == pytest.approx(1.5 * plan.accounts[0].sent)


def gpt3(*, flash: bool) -> Activations:
    layer = Layer(sequence=2048, batch=1, hidden=12288, heads=96)
    return of_shape(layer=layer, number=96, vocabulary=None, flash=flash, element=2)


def test_gpt_3_activations():
    """Korthikanti et al.: 2.869 GB per layer; with full recomputation, 4.83 of inputs, and one layer is computed."""
    found = gpt3(flash=False)

    assert found.whole / GB == pytest.approx(275.4, abs=0.05)
    assert found.kept(found.by_selection) / GB == pytest.approx(82.1, abs=0.05)
    assert 1 - found.selective / found.whole == pytest.approx(0.702, abs=0.001)
    assert found.by_selection.extra == pytest.approx(0.0270, abs=0.0001)
    assert found.kept(every(1)) / GB == pytest.approx(4.83 + 2.869, abs=0.01)


def test_no_selective_checkpointing_with_flash_attention():
    found = gpt3(flash=True)

    assert found.whole == pytest.approx(gpt3(flash=False).selective)
    assert found.selective is None
    assert not any(way.selective for way in found.choices)


def llama_layers() -> Activations:
    layer = Layer(sequence=4096, batch=1, hidden=4096, heads=32)
    return of_shape(layer=layer, number=32, vocabulary=None, flash=True, element=2)


@pytest.mark.parametrize(
    ("way", "kept", "extra"),
    [(None, 18.25, 0), (4, 14.53, 0.083), (2, 10.23, 0.167), (1, 1.64, 0.333)],
)
def test_checkpointing_every_nth_layer(way, kept, extra):
    found = llama_layers()
    how = found.choices[0] if way is None else every(way)

    assert found.kept(how) / GB == pytest.approx(kept, abs=0.01)
    assert how.extra == pytest.approx(extra, abs=0.001)


@pytest.mark.parametrize(("need", "number"), [(4e9, 3), (9e9, 1)])
def test_the_n_that_frees_what_is_needed(need, number):
    found = llama_layers()

    assert found.least(1, found.whole - need) == every(number)


def test_activations_include_logits():
    """6 bytes x 8192 tokens x 128256 words: 6.30 GB; in fp32, 8 bytes."""
    layer = Layer(sequence=8192, batch=1, hidden=4096, heads=32)
    for element, expected in ((2, 6.30), (4, 8.41)):
        bare = of_shape(layer=layer, number=2, vocabulary=None, flash=True, element=element)
        full = of_shape(layer=layer, number=2, vocabulary=128256, flash=True, element=element)
        assert (full.whole - bare.whole) / GB == pytest.approx(expected, abs=0.01)
        assert (full.kept(every(1)) - bare.kept(every(1))) / GB == pytest.approx(expected, abs=0.01)


@given(st.integers(1, 100), st.floats(1e6, 1e11), st.floats(-1e10, 1e12), st.integers(1, 64))
def test_chosen_checkpointing_fits_or_full_checkpointing_does_not(number, each, room, batch):
    found = measured(each, number)
    chosen = found.least(batch, room)

    if chosen is None:
        assert batch * found.kept(every(1)) > room
    else:
        assert batch * found.kept(chosen) <= room


def test_largest_batch_from_two_peaks():
    """8 -> 21 GB, 16 -> 31 GB, 79 GB: F is 11, each sample 1.25; 49 samples fit, 48 as a multiple of 8."""
    found = of_peaks(((16, 31e9), (8, 21e9)), 0.92 * 79e9)

    assert (found.line.fixed / GB, found.line.each / GB) == pytest.approx((11, 1.25))
    assert (found.largest, found.even) == (49, 48)


@pytest.mark.parametrize(
    "peaks", [((8, 21e9),), ((8, 21e9), (8, 22e9)), ((8, 21e9), (16, 20e9)), ((8, 1e9), (16, 3e9))]
)
def test_uninformative_peaks_are_refused(peaks):
    with pytest.raises(ProfilerError):
        of_peaks(peaks, 79e9)


# The smallest change. Without other activations than these, what fits can be computed by hand.
SAMPLE = measured(1e9, 10)


@pytest.mark.parametrize(
    ("memory", "placement", "optimizer", "checkpointing"),
    [
        # 24 + 3 + 1 GB whole; 13.5 + 3 + 1 with the optimizer sharded; 3 + 3 + 1 with all; and so on.
        (28.1, Placement(0), "adamw", "none"),
        (27.9, Placement(1), "adamw", "none"),
        (17.6, Placement(1), "adamw", "none"),
        (17.4, Placement(2), "adamw", "none"),
        (7.01, Placement(2), "adamw", "none"),
        (6.9, Placement(2), "adamw", "every 4th"),
        (6.2, Placement(2), "adamw", "full"),
        # The moments' 1.5 GB become 0.38.
        (6.1, Placement(2), "adamw-8bit", "none"),
        (5.1, Placement(2), "adamw-8bit", "full"),
        # 3 GB of states, no unit: 0.2 GB gathered.
        (4.5, Placement(3), "adamw", "none"),
        (3.5, Placement(3), "adamw", "full"),
        (3.3, Placement(3), "adamw-8bit", "none"),
        # 0.375 + 0.2 GB on the GPU.
        (1.6, Placement(3, Offload.OPTIMIZER), "adamw", "none"),
        (0.76, Placement(3, Offload.OPTIMIZER), "adamw", "full"),
        (0.5, Placement(3, Offload.ALL), "adamw", "full"),
    ],
)
def test_the_smallest_change_that_fits(memory, placement, optimizer, checkpointing):
    plan = planned(memory=memory * GB, reserve=0.0, activations=SAMPLE, unit=50e6)
    choice = plan.choice

    assert choice is not None
    assert (choice.account.placement, choice.account.optimizer) == (placement, optimizer)
    assert choice.checkpointing.name == checkpointing
    assert plan.used(choice) <= memory * GB


def test_says_how_many_gpus_are_needed_if_nothing_fits():
    """The host is too small for offload. 8 bits, all sharded and recomputed: 15.045 GB / D, plus 0.2 + 0.154 GB
    each."""
    plan = planned(memory=2 * GB, reserve=0.0, host=10 * GB, activations=SAMPLE, unit=50e6)

    assert plan.choice is None
    own = 0.2 * GB + plan.activations.kept(every(1))
    assert plan.least_gpus == -(-1.5e9 * 10.03 // (2 * GB - own)) == 10
    assert "at least 10 GPUs" in advice.headline(plan)
    assert (
        planned(gpus=10, per_node=10, memory=2 * GB, reserve=0.0, host=10 * GB, activations=SAMPLE, unit=50e6).choice
        is not None
    )
    assert (
        planned(gpus=9, per_node=9, memory=2 * GB, reserve=0.0, host=10 * GB, activations=SAMPLE, unit=50e6).choice
        is None
    )


def test_too_large_sample_fits_no_number_of_gpus():
    plan = planned(memory=2 * GB, activations=measured(100e9, 2), unit=50e6)

    assert plan.choice is None
    assert plan.least_gpus is None
    assert advice.headline(plan)


def test_one_gpu_has_no_zero_stages():
    plan = planned(gpus=1)

    assert {one.placement.stage for one in plan.accounts if one.placement.offload is Offload.NOTHING} == {0}
    assert "ZeRO 1" not in " ".join(advice.why(plan))


def test_the_reserve_is_kept_free():
    assert cluster(memory=100e9, reserve=0.1).budget == pytest.approx(90e9)
    assert planned(memory=27.1 * GB, reserve=0.0).choice.account.placement == Placement(0)
    assert planned(memory=27.1 * GB).choice.account.placement == Placement(1)


def test_without_activations_only_states_are_planned_and_it_says_so():
    model = Model(parameters=1.5e9, hidden=2048)
    plan = replace(planned(), model=model)

    assert plan.largest(plan.plain, every(1)) is None
    assert any("--layers --sequence" in note for note in advice.notes(plan))
    assert "activations" in advice.headline(plan)


def test_unknown_unit_size_is_not_taken_as_zero():
    known, unknown = planned(unit=50e6).accounts[3], planned().accounts[3]

    assert known.transient == pytest.approx(0.2e9)
    assert unknown.transient is None
    assert unknown.deepspeed is None


def test_the_largest_micro_batch_fits_and_one_more_does_not():
    plan = planned(activations=SAMPLE, unit=50e6)
    for one in plan.accounts + plan.accounts_in_8_bits:
        for way in plan.activations.choices:
            most, each = plan.largest(one, way), plan.activations.kept(way)
            assert most == 0 or one.least + most * each <= plan.cluster.budget
            assert one.least + (most + 1) * each > plan.cluster.budget


@pytest.mark.parametrize(
    ("target", "micro", "steps", "of", "total"), [(512, 4, 16, 4, 512), (100, 4, 4, 4, 128), (8, 4, 1, 1, 8)]
)
def test_accumulation_reaches_target_batch(target, micro, steps, of, total):
    plan = planned(activations=SAMPLE, unit=50e6, micro_batch=micro, target_batch=target)
    found = plan.accumulation

    assert (found.steps, found.micro_batch, found.total) == (steps, of, total)


def test_shape_that_does_not_match_parameters_is_reported():
    model = Model(parameters=1.5e9, layers=24, hidden=2048, sequence=1024)

    assert model.unmatched is None
    assert replace(model, parameters=15e9).unmatched == pytest.approx(12 * 24 * 2048**2)
    assert model.missing == ()
    assert Model(parameters=1.5e9, layers=24, flash=False).missing == ("--hidden", "--sequence", "--heads")
    assert Model(parameters=1.5e9, hidden=2048).unit is None
    llama = Model(parameters=8.03e9, layers=32, hidden=4096, vocabulary=128256)
    assert llama.unit == pytest.approx(128256 * 4096)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Model(parameters=0),
        lambda: Model(parameters=1e9, largest_unit=2e9),
        lambda: cluster(gpus=12),
        lambda: cluster(reserve=1.0),
        lambda: Model(parameters=1e6, layers=2, hidden=100, heads=3, sequence=8).activations,
    ],
)
def test_impossible_input_gives_message_and_remedy(wrong):
    with pytest.raises(ProfilerError) as raised:
        wrong()

    assert raised.value.message.endswith(".")
    assert raised.value.remedy.endswith(".")
