"""The peak rates of the GPU, from its data sheet or from its generation and clock."""

from advisor.metrics.base import Metrics, Missing, known, metric
from advisor.metrics.gpu import FEW_CONVOLUTIONS, conv_share, device, matmul_share
from advisor.metrics.operators import products, shaped_operators
from advisor.metrics.settings import primary_rank
from advisor.models.gpus import Peaks, derived, peaks
from advisor.models.precision import MatmulCall


@metric(None)
def peak_rates(m: Metrics) -> Peaks:
    """Peak FLOP/s of the GPU by kind of arithmetic.

    They come from a table of data sheets. For GPUs that are not in it, they are derived from compute capability,
    multiprocessors and clock.
    """
    gpu = m[device]
    rates = peaks(gpu.name)
    if rates is None and not gpu.is_amd and gpu.capability and gpu.multiprocessors:
        rates = derived(gpu.name, gpu.capability, gpu.multiprocessors, gpu.sm_clock_max, gpu.bandwidth)
    remedy = "Add the dense rates from its data sheet to advisor/models/gpus.py."
    return known(rates, f"The peak rates of {gpu.name} are unknown", remedy)


@metric(None)
def matmul_calls(m: Metrics) -> tuple[MatmulCall, ...]:
    """The matmuls and convolutions of the profiler windows, with the duration and the elements moved per call.

    They are grouped by operator and shape if shapes were recorded and there are few convolutions, otherwise by kernel.
    """
    shaped = m.get(shaped_operators)
    if shaped and shaped.device == "cuda" and m[products] and m[conv_share] <= FEW_CONVOLUTIONS * m[matmul_share]:
        timings = [(matmul.seconds, matmul.calls, matmul.numbers) for matmul in m[products]]
    else:
        kernels = [kernel for kernel in m[primary_rank].kernels if kernel.device == "cuda"]
        timings = [(matmul.total, matmul.calls, 0) for matmul in kernels if matmul.kind in ("matmul", "convolution")]
    total = sum(seconds for seconds, _, _ in timings)
    if total <= 0:
        raise Missing("No matmul was recorded", "Run on a GPU, for long enough to open a profiler window.")
    return tuple(MatmulCall(seconds / total, seconds / calls, numbers) for seconds, calls, numbers in timings if calls)
