import pytest
from profiles import metrics, nvml_uuid, rank, torch_uuid

from advisor.metrics.base import Missing
from advisor.metrics.gpu import device
from advisor.metrics.peaks import matmul_calls, peak_rates
from advisor.models.precision import MatmulCall
from profiler.schema import DeviceFact, Gpu, Kernel, MemoryFact, Operator, Window


def on(name, capability=(8, 9), hip=None, **facts):
    """Return metrics of a machine with two GPUs; the faster one trains: NVML's second is torch's only one."""
    other = Gpu(index=0, uuid=nvml_uuid(1), name="NVIDIA A100-SXM4-40GB", memory_total=40, sm_clock_max=1410)
    mine = Gpu(
        index=1,
        uuid=nvml_uuid(2),
        name=name,
        memory_total=80,
        sm_clock_max=2000,
        memory_clock_max=10501,
        memory_bus_width=192,
    )
    fact = DeviceFact(id=0, uuid=torch_uuid(2), name=name, capability=capability, memory_total=80, **facts)
    return metrics(rank(devices=(fact,), process={"hip": hip}), gpus=(other, mine))


def test_table_takes_precedence_over_derived_peaks():
    assert on("NVIDIA GeForce RTX 4090", multiprocessors=1)[peak_rates].half == 165e12


def test_unlisted_gpu_gets_rates_of_its_generation():
    found = on("NVIDIA RTX 2000 Ada Generation", multiprocessors=22)[peak_rates]

    assert found.derived
    assert found.half == pytest.approx(22 * 1024 * 2e9)
    assert found.bandwidth == pytest.approx(504e9, rel=0.01)


def test_peak_rates_are_missing_for_unknown_gpus():
    for m in (on("NVIDIA Next"), on("AMD Radeon Next", (11, 0), hip="7.0", multiprocessors=96)):
        with pytest.raises(Missing):
            m[peak_rates]


def test_device_is_gpu_that_trains():
    facts = tuple(DeviceFact(id=n, uuid=torch_uuid(n), name=f"GPU {n}", memory_total=n) for n in (0, 1))
    peaks = tuple(MemoryFact(id=n, allocated_peak=n) for n in (0, 1))

    assert metrics(rank(devices=facts, memory_peaks=peaks))[device].name == "GPU 1"
    assert metrics(rank(devices=facts))[device].name == "GPU 0"


def windowed(*operators, kind="matmul"):
    def kernel(kind, total, calls):
        return Kernel(pid=1, window=0, device="cuda", name=kind, kind=kind, calls=calls, total=total)

    return metrics(
        rank(
            windows=(Window(pid=1, start=0.0, steps=1, duration=1.0, cost=0.0, device="cuda", shapes=True),),
            kernels=(kernel("matmul", 0.03, 10), kernel(kind, 0.01, 2), kernel("elementwise", 0.5, 9)),
            operators=operators,
        )
    )


def test_matmuls_by_shape_or_else_by_kernel():
    product = Operator(
        pid=1, window=0, device="cuda", name="aten::mm", inputs=((8, 16), (16, 4)), dtype="fp32", calls=4, total=0.02
    )

    assert windowed(product)[matmul_calls] == (MatmulCall(1.0, 0.005, 8 * 16 + 16 * 4 + 8 * 4),)
    by_kernel = (MatmulCall(0.75, pytest.approx(0.003)), MatmulCall(0.25, pytest.approx(0.005)))
    assert windowed()[matmul_calls] == by_kernel
    assert windowed(product, kind="convolution")[matmul_calls] == by_kernel, "the shapes are of a part only"
    with pytest.raises(Missing):
        metrics(rank())[matmul_calls]
