from harness import DoesNotFire, Fires, NotMeasured, given

from advisor.metrics.base import Goals, Quality
from advisor.metrics.gpu import Device, device
from advisor.metrics.step import step_time_mean

STEP = {step_time_mean: 0.1}
ON_GPU = {**STEP, device: Device(name="A100", capability=(8, 0), memory_total=80 << 30, count=1)}
ACCURATE = Quality("val_acc", ">=", 0.76)

CASES = [
    Fires("nothing was declared", given(STEP), code=("--goal", "--quality"), then="100 ms", no_gain=True, fault=False),
    Fires("the goal is a larger model or batch", given(STEP, Goals(capacity=True)), code="--goal cost --quality"),
    Fires(
        "the goal is throughput, at an unknown quality",
        given(STEP, Goals(goal="throughput")),
        code="RUN --quality",
        then="must not change",
    ),
    Fires("a quality without a goal", given(STEP, Goals(quality=ACCURATE)), code="RUN --goal cost\n"),
    Fires(
        "the goal is cost, without a GPU price",
        given(ON_GPU, Goals(goal="cost", quality=ACCURATE)),
        code="RUN --gpu-price 2.5",
        then="No GPU price",
    ),
    DoesNotFire(
        "the goal is cost, with a GPU price", given(ON_GPU, Goals(goal="cost", quality=ACCURATE, gpu_price=2.5))
    ),
    DoesNotFire(
        "the goal is cost, on a CPU: no GPU price is needed", given(STEP, Goals(goal="cost", quality=ACCURATE))
    ),
    DoesNotFire(
        "the goal is throughput: no GPU price is needed", given(ON_GPU, Goals(goal="throughput", quality=ACCURATE))
    ),
    NotMeasured("there was no step", given({})),
]
