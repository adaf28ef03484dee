from dataclasses import replace

from gpu_runs import FLAGS, a_gpu, cpu_metrics, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.base import Missing
from advisor.metrics.gpu import device, launch_bound_index, median_kernel_us, replays_graphs
from advisor.metrics.operators import compiled_functions
from advisor.metrics.settings import flags, is_trace
from advisor.models.state import State
from advisor.rules.base import Intervention, Safety

TINY = {launch_bound_index: 0.6, median_kernel_us: 4.0, flags: replace(FLAGS, compile=False)}
COMPILED = {is_trace: True, launch_bound_index: 0.2, median_kernel_us: 40.0, flags: FLAGS}

CASES = [
    Fires(
        "kernels of 4 us",
        gpu_metrics(TINY),
        code=("mode='reduce-overhead'", "# the Transformer"),
        then="60%",
        state=State(phases={"forward": 0.04, "backward": 0.05, "optimizer": 0.01}, launch_idle=0.06, launch=0.09),
        removed=(0.3, 0.45, 0.54),
        intervention=Intervention(name="compile", settings={"mode": "reduce-overhead"}, safety=Safety.NUMERICS),
    ),
    Fires("the program already compiles the model", gpu_metrics({**TINY, flags: FLAGS}), by_hand=True),
    Fires("the launch-bound index just above the limit", gpu_metrics({**TINY, launch_bound_index: 0.31})),
    DoesNotFire("the launch-bound index just below the limit", gpu_metrics({**TINY, launch_bound_index: 0.29})),
    Fires("kernels just short enough", gpu_metrics({**TINY, median_kernel_us: 9.9})),
    DoesNotFire("kernels just too long", gpu_metrics({**TINY, median_kernel_us: 10.1})),
    Fires("a compiled model with longer kernels", gpu_metrics(COMPILED), code="TORCH_LOGS=graph_breaks,perf_hints"),
    Fires(
        "compiled in several pieces",
        gpu_metrics({**COMPILED, compiled_functions: 3}),
        then="3 functions are compiled separately",
    ),
    Fires("compiled, just above the limit", gpu_metrics({**COMPILED, launch_bound_index: 0.151})),
    DoesNotFire("compiled, just below the limit", gpu_metrics({**COMPILED, launch_bound_index: 0.149})),
    DoesNotFire("compiled, in a recording instead of a trace", gpu_metrics({**COMPILED, is_trace: False})),
    DoesNotFire("CUDA graphs are replayed already", gpu_metrics({**TINY, replays_graphs: True})),
    DoesNotFire("a Pascal GPU", gpu_metrics({**TINY, device: a_gpu("Tesla P40", (6, 1))})),
    NotMeasured("no GPU", cpu_metrics(phases={})),
    NotMeasured(
        "kernels were not timed", gpu_metrics({**TINY, median_kernel_us: Missing("No kernels", "Record some.")})
    ),
]
