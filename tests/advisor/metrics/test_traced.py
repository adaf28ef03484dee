import pytest
from profiles import metrics, rank, steps

from advisor.metrics.base import Missing
from advisor.metrics.traced import fused_update
from profiler.schema import DeviceFact, Operator, Window


def recorded(moved, phase="optimizer"):
    """Return metrics of two steps that end with an update of moments and parameters."""
    last = Operator(
        pid=1,
        window=1,
        device="cuda",
        name="aten::_foreach_addcdiv_",
        inputs=(),
        calls=2,
        total=0.1,
        phase=phase,
        bytes=moved,
    )
    windows = (Window(pid=1, start=1.0, steps=2, duration=1.0, cost=0.0, device="cuda", busy=1.0, kernels=9),)
    devices = (DeviceFact(id=0, name="NVIDIA A100-SXM4-80GB", capability=(8, 0), memory_total=80 * 10**9),)
    return metrics(rank(steps=steps(*[0.1] * 40), windows=windows, operators=(last,), devices=devices))


def test_a_fused_update_moves_seven_tensors():
    a_billion = 2 * 4 * 4e9  # fp32 parameters: three tensors read and one written, twice
    assert recorded(a_billion)[fused_update] == pytest.approx(7 * 4e9 / (0.8 * 2.039e12), rel=0.01)


@pytest.mark.parametrize("m", [recorded(None), recorded(1e9, phase="forward")])
def test_fused_update_is_missing_without_bytes(m):
    with pytest.raises(Missing):
        m[fused_update]
