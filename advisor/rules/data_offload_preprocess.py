"""The GPU waits for batches, and every core that could prepare them is busy.

More workers than cores do not help if the workers compute all the time. The remaining option is to move their work:
decoding and augmentation can run on the GPU, if it has time to spare, or on other machines that send finished batches.

Wrong when: you can do the work once and store the result, which is simpler; or the code is inefficient (one image
library may be several times as fast as another).

Source: Mohan et al.: Analyzing and Mitigating Data Stalls in DNN Training, VLDB 2021
Source: NVIDIA DALI documentation, https://docs.nvidia.com/deeplearning/dali/user-guide/docs/
"""

from advisor.metrics import Metrics, Threshold, gpu, input, step
from advisor.models.effects import remove_wait
from advisor.rules._workers import MIN_WAIT, gain, right_number
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, evidence, measure, python, text
from advisor.rules.data_more_workers import MIN_EFFICIENCY
from advisor.units import share

RULE = Rule("Move preprocessing off the CPU", Area.STALLS, Confidence.HEURISTIC, difficulty=3)

MIN_CPU = Threshold(
    0.8,
    "Workers that compute for a smaller share of their time mostly wait for storage or sleep; moving computation "
    "would not help.",
)

MAX_BUSY = Threshold(0.9, "A GPU busier than this has no time for preprocessing (assumption).")

# Share of the waiting that is saved: from a part of the work moved to almost all of it (assumption).
REMOVED = (0.3, 0.6, 0.9)
EFFECT = remove_wait(REMOVED)

ON_GPU = """\
# torchvision's transforms v2 also work on batches that are on the GPU already; the loader only reads and decodes
augment = v2.Compose([v2.RandomResizedCrop(224), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True)])
inputs = augment(inputs.to("cuda", non_blocking=True))
"""

FLEET = """\
Let other machines prepare and send the batches: Ray Data, tf.data service, or your own process on each machine.
"""


def when(m: Metrics) -> Evidence | None:
    """If the GPU waits for data, the workers compute all the time, there are no cores for more of them, and moving
    their work should save at least 5 % of the step,
    """
    m[gpu.device]
    reason = evidence(
        measure(m, step.data_wait_fraction, ">=", MIN_WAIT),
        measure(m, input.worker_efficiency, ">=", MIN_EFFICIENCY),
        measure(m, input.worker_cpu_share, ">=", MIN_CPU),
        note=f"{m[input.loader].dataset} is read with num_workers={m[input.loader].num_workers}: no core is left",
    )
    if not reason or right_number(m) > m[input.loader].num_workers:
        return None
    return reason if gain(m, EFFECT) >= m[MIN_WAIT] else None


def then(m: Metrics, found: Evidence) -> Advice:
    """then decode and augment on the GPU, or on other machines if the GPU has no time to spare."""
    place = m[input.loader].place
    busy_share = m.get(gpu.gpu_busy_fraction)
    gpu_is_free = busy_share is None or busy_share <= m[MAX_BUSY]
    location = "on the GPU (NVIDIA DALI, torchvision's transforms v2)" if gpu_is_free else "on other machines"
    return Advice(
        then=f"Decode or augment {location}: the step waits {share(m[step.data_wait_fraction])} of its time for "
        "workers that already use every core.",
        changes=(python(ON_GPU, place) if gpu_is_free else text(FLEET, place),),
        basis="30, 60 or 90 % of the waiting is saved, depending on how much of the work can move.",
        effect=EFFECT,
        risk="Medium: other libraries resize and decode slightly differently; compare the loss. On the GPU, "
        "batches before augmentation take memory.",
    )
