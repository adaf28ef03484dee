from dataclasses import replace

from gpu_runs import FLAGS, a_gpu
from harness import DoesNotFire, Fires, NotMeasured, given

from advisor.metrics.gpu import device, fp16_matmul_share
from advisor.metrics.settings import flags, scaler
from advisor.models.state import State
from profiler.schema import ScalerFact

SCALED = replace(FLAGS, autocast_dtype="float16", grad_scaler=True)
BARE = replace(SCALED, grad_scaler=False)


def skipping(number: int, steps: int = 10_000, capability: tuple[int, int] = (8, 0)):
    return given({flags: SCALED, scaler: ScalerFact(steps=steps, skipped=number), device: a_gpu(capability=capability)})


CASES = [
    Fires(
        "an eighth of the steps are skipped, on an A100",
        skipping(1221),
        code="bfloat16",
        absent="GradScaler(",
        note="1221 of 10000",
        state=State(phases={"forward": 0.1}),
        removed=(0.06, 0.096, 0.12),
        fault=True,
    ),
    Fires(
        "an eighth of the steps are skipped, on a V100",
        skipping(1221, capability=(7, 0)),
        code=("scaler.unscale_", "outputs.float()"),
    ),
    # 16 to find the scale and 5 for growing it are normal; 1 % of the rest is 100
    Fires("just above 1 %", skipping(122)),
    DoesNotFire("just below 1 %", skipping(121)),
    DoesNotFire("a short run that is still finding its scale", skipping(12, steps=60)),
    Fires(
        "fp16 without loss scaling",
        given({flags: BARE, fp16_matmul_share: 0.5, device: a_gpu("Tesla T4", (7, 5), 16)}),
        code="GradScaler(",
        then="become zero",
        no_gain=True,
        fault=True,
    ),
    DoesNotFire("fp16 in an evaluation only", given({flags: BARE, fp16_matmul_share: 0.19})),
    DoesNotFire("DeepSpeed scales the loss itself", given({flags: replace(BARE, zero_stage=2)})),
    Fires(
        "FSDP does not scale the loss itself",
        given({flags: replace(BARE, fsdp=True, zero_stage=3), fp16_matmul_share: 0.5, device: a_gpu()}),
    ),
    DoesNotFire("bf16 needs no loss scaling", given({flags: FLAGS})),
    NotMeasured("the settings were not read", given({fp16_matmul_share: 0.5})),
    NotMeasured("no kernels were recorded", given({flags: BARE})),
    NotMeasured("the scaler's state was lost", given({flags: SCALED})),
]
