import pytest
from profiles import metrics, rank, steps

from advisor.metrics.base import Missing
from advisor.metrics.copies import gradient_copies, layout_copies
from profiler.schema import Kernel, Operator, Window

STRIDED = "void at::native::elementwise_kernel<128, 4, direct_copy_kernel_cuda>"


def copy(*path, total=0.1, kernel=STRIDED, name="aten::copy_", gap=0.0):
    return Operator(
        pid=1, window=1, device="cuda", name=name, inputs=(), calls=4, total=total, path=path, kernel=kernel, gap=gap
    )


def recorded(*operators):
    """Return metrics of two steps whose kernels take a second."""
    windows = (Window(pid=1, start=1.0, steps=2, duration=1.0, cost=0.0, device="cuda", busy=1.0, kernels=9),)
    kernels = (Kernel(pid=1, window=1, device="cuda", name="gemm", kind="matmul", calls=1, total=1.0),)
    return metrics(rank(steps=steps(*[0.1] * 40), windows=windows, kernels=kernels, operators=operators))


def test_layout_copies_come_from_operators_that_need_another_layout():
    m = recorded(
        copy("Model", "Attention", "aten::reshape", "aten::clone", total=0.2),
        copy("Model", "MLP", "aten::contiguous", "aten::clone"),
        copy("Model", "aten::to", "aten::_to_copy"),
        copy("Model", "aten::clone", kernel="Memcpy DtoD (Device -> Device)"),
        copy("Model", "aten::reshape", name="aten::cat"),
    )

    found = m[layout_copies]
    assert (found.calls, found.place) == (4, "Attention")
    assert (found.seconds, found.share) == pytest.approx((0.15, 0.3))


def test_gradient_copies_come_from_ddp_reducer():
    reducer = "torch.distributed.ddp.reducer::copy_bucket_to_grad"
    m = recorded(copy(reducer, gap=0.3), copy("AccumulateGrad", gap=0.6))

    found = m[gradient_copies]
    assert (found.calls, found.seconds) == (2, 0.05)
    assert found.late == pytest.approx(1 / 3)


def test_without_operators_copies_are_not_measured():
    with pytest.raises(Missing):
        recorded()[layout_copies]
