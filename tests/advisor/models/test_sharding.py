"""The frameworks' own figures; GB = 1e9, GiB = 2^30 bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.models.memory import States, states
from advisor.models.sharding import DeepSpeedEstimate, gathered, offload_time

GIB = 2**30
FP32_ADAM, MIXED_ADAM = (4, 4, 8), (2, 2, 12)
T5_3B = DeepSpeedEstimate(parameters=2851e6, largest=32e6, gpus=8)


@pytest.mark.parametrize(
    ("estimate", "gpu", "host"),
    [
        (T5_3B.stage_2(), 15.93, 127.45),
        (T5_3B.stage_2(offload=True), 5.31, 127.45),
        (T5_3B.stage_3(), 6.09, 127.45),
        (T5_3B.stage_3(offload=True), 0.78, 127.45),
        (T5_3B.stage_3(offload=True, offload_parameters=True), 0.12, 127.45),
    ],
    ids=["2", "2, optimizer on the host", "3", "3, optimizer on the host", "3, everything on the host"],
)
def test_deepspeeds_estimators(estimate, gpu: float, host: float):
    assert estimate.gpu / GIB == pytest.approx(gpu, abs=0.005)
    assert estimate.host / GIB == pytest.approx(host, abs=0.01)


def test_one_gpu_needs_host_memory_only_for_its_state():
    alone = DeepSpeedEstimate(parameters=1e9, gpus=1)
    assert alone.stage_2(offload=True).host == pytest.approx(16e9 * 1.5)
    assert alone.stage_3(offload=True, offload_parameters=True).host == pytest.approx(18e9 * 1.5)


def test_llama_8b_under_fsdp():
    whole = states(8.03e9, FP32_ADAM)
    assert whole.sharded(3, 8).total / 1e9 == pytest.approx(16.06)
    assert (whole.sharded(3, 8).total + gathered(218e6)) / 1e9 == pytest.approx(16.93, abs=0.005)


def test_the_time_of_an_offloaded_optimizer():
    assert offload_time(1.5e9, 1, bus=25e9, host=80e9) == pytest.approx(0.24 + 0.525)
    assert offload_time(1.5e9, 2, bus=25e9, host=80e9) == pytest.approx(0.765 / 2)


@given(
    st.floats(0, 1e12),
    st.floats(0, 1e12),
    st.floats(0, 1e12),
    st.integers(1, 4096),
    st.integers(1, 4096),
)
def test_higher_stage_or_more_ranks_never_take_more_memory(
    weights: float, grads: float, optim: float, ranks: int, more: int
):
    whole = States(weights, grads, optim)
    by_stage = [whole.sharded(stage, ranks).total for stage in range(4)]
    assert by_stage == sorted(by_stage, reverse=True)
    for stage in range(4):
        assert whole.sharded(stage, ranks + more).total <= by_stage[stage]
        assert whole.sharded(stage, 1) == whole
    assert by_stage[3] * ranks == pytest.approx(whole.total)


@given(st.floats(1e6, 1e12), st.integers(1, 64), st.integers(1, 64))
def test_the_papers_formulas(parameters: float, ranks: int, nodes: int):
    """4 psi + 12 psi/D, 2 psi + 14 psi/D, 16 psi/D with K = 12."""
    whole, each = states(parameters, MIXED_ADAM), parameters / ranks
    formulas = [16 * parameters, 4 * parameters + 12 * each, 2 * parameters + 14 * each, 16 * each]
    assert [whole.sharded(stage, ranks).total for stage in range(4)] == pytest.approx(formulas)
    estimates = DeepSpeedEstimate(parameters=parameters, gpus=ranks, nodes=nodes)
    assert estimates.stage_2(offload=True).gpu <= estimates.stage_2().gpu
    assert estimates.stage_3(offload=True).gpu <= estimates.stage_3().gpu


@pytest.mark.parametrize(
    "nonsense",
    [
        lambda: DeepSpeedEstimate(parameters=1, largest=2, gpus=1),
        lambda: DeepSpeedEstimate(parameters=1, gpus=0),
        lambda: gathered(-1),
        lambda: offload_time(1, 1, bus=0, host=1),
        lambda: states(1, FP32_ADAM).sharded(4, 2),
        lambda: states(1, FP32_ADAM).sharded(1, 0),
        lambda: states(-1, FP32_ADAM),
    ],
)
def test_nonsense_is_refused(nonsense):
    with pytest.raises(ValueError, match=r"-?\d"):
        nonsense()
