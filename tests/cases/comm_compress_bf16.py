from dataclasses import replace

from gpu_runs import FLAGS, a_gpu, cpu_metrics, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.base import Missing
from advisor.metrics.communication import (
    comm_total,
    ddp,
    exposed_comm_seconds,
    exposed_transfer,
    straggler_wait,
)
from advisor.metrics.gpu import device
from advisor.metrics.settings import flags, on_cpu, world_size
from advisor.models.state import State
from advisor.rules.base import Intervention, Safety
from profiler.schema import DdpFact, Place

GRADIENTS = 350_000_000 * 4
FP32 = DdpFact(
    id=1,
    place=Place(file="train.py", line=7),
    backend="nccl",
    gradient_bytes=GRADIENTS,
    dtypes=("float32",),
    bucket_cap=25 * 2**20,
    buckets=54,
    passes=100,
    reduced=100,
)


def reducing(exposed: float, total: float = 0.245, wait: float = 0.0, fact: DdpFact = FP32):
    """Return metrics of 350 M gradients over 8 ranks at 10 GB/s, as in tests of models/sharding.py: 345 ms a step."""
    return gpu_metrics(values(exposed, total, wait, fact), time=0.345)


def values(exposed: float, total: float, wait: float, fact: DdpFact):
    return {
        world_size: 8,
        flags: replace(FLAGS, ddp=True),
        on_cpu: False,
        device: a_gpu(count=8),
        ddp: fact,
        comm_total: total,
        exposed_comm_seconds: exposed,
        straggler_wait: wait,
        exposed_transfer: max(0.0, exposed - wait),
    }


def with_device(capability: tuple[int, int]):
    return gpu_metrics({**values(0.11, 0.245, 0.0, FP32), device: a_gpu(capability=capability)}, time=0.345)


STEP = State(phases={"forward": 0.075, "backward": 0.15, "optimizer": 0.01, "communication": 0.11})
UNSEEN = Missing("No", "Yes.")

CASES = [
    Fires(
        "110 of 345 ms exposed: all but the last bucket can be hidden",
        reducing(0.110),
        code=("bf16_compress_hook", "gradient_as_bucket_view=True", "bucket_cap_mb=50"),
        absent="find_unused_parameters",
        note="32% of the step",
        state=STEP,
        # 110 - 4.6 ms: 345 / 239.6 is 1.44 times as fast.
        removed=(0.153, 0.245, 0.3055),
        memory=-GRADIENTS,
        intervention=Intervention(
            name="ddp_hook",
            settings={"dtype": "bfloat16", "arguments": {"gradient_as_bucket_view": True, "bucket_cap_mb": 50}},
            safety=Safety.NUMERICS,
        ),
    ),
    Fires(
        "if communication is not a phase, the backward pass gets shorter",
        reducing(0.110),
        state=State(phases={"forward": 0.075, "backward": 0.26, "optimizer": 0.01}),
        removed=(0.153, 0.245, 0.3055),
    ),
    Fires(
        "nothing hides the collectives: they take half the time",
        reducing(0.110, total=0.110),
        state=STEP,
        removed=(0.5 * 0.055 / 0.345, 0.8 * 0.055 / 0.345, 0.055 / 0.345),
    ),
    Fires(
        "all gradients in one bucket",
        reducing(0.110, total=0.120, fact=replace(FP32, gradient_bytes=10**7, buckets=1)),
        absent="bucket_cap_mb",
        state=STEP,
        removed=(0.5 * 0.05 / 0.345, 0.8 * 0.05 / 0.345, 0.05 / 0.345),
    ),
    Fires(
        "correct DDP settings are not changed",
        reducing(0.110, fact=replace(FP32, gradient_as_bucket_view=True, buckets=5)),
        absent="DistributedDataParallel(",
        memory=0,
    ),
    Fires(
        "an unneeded search for unused parameters",
        reducing(0.110, fact=replace(FP32, find_unused_parameters=True)),
        code="find_unused_parameters=False",
    ),
    Fires("just above the limit", reducing(0.0277)),
    DoesNotFire("just below the limit", reducing(0.0275)),
    DoesNotFire("ranks wait for a slow rank, not for the link", reducing(0.110, wait=0.09)),
    DoesNotFire("a hook is registered already", reducing(0.110, fact=replace(FP32, comm_hook="PowerSGD"))),
    DoesNotFire("gradients are bf16 already", reducing(0.110, fact=replace(FP32, dtypes=("bfloat16",)))),
    DoesNotFire("gloo has no such hook", reducing(0.110, fact=replace(FP32, backend="gloo"))),
    DoesNotFire("a Turing GPU", with_device((7, 5))),
    DoesNotFire("one rank", gpu_metrics()),
    DoesNotFire(
        "training on CPUs",
        cpu_metrics({world_size: 2, flags: replace(FLAGS, ddp=True), on_cpu: True}, phases={}),
    ),
    NotMeasured("communication was not measured", gpu_metrics({**values(0.1, 0.2, 0, FP32), exposed_transfer: UNSEEN})),
    NotMeasured(
        "only exposed communication was measured", gpu_metrics({**values(0.1, 0.2, 0, FP32), comm_total: UNSEEN})
    ),
]
