"""The GPU waits for batches, and every core that could make them is at it.

Workers that compute all the time can be no more than the cores. What is left is to move their work: decoding and
augmentation can run on the GPU, as long as it has time to spare, or on other machines that send finished batches.

Wrong when: the work can be done once and stored, which is simpler; or it is short of efficiency rather than of cores
(one image library may be several times as fast as another).
"""

from __future__ import annotations

from advisor.metrics.base import Metrics, Threshold
from advisor.metrics.gpu import device, gpu_busy_fraction
from advisor.metrics.input import loader, queue_empty_fraction, u_w
from advisor.metrics.step import data_wait_fraction
from advisor.models.effects import remove_wait
from advisor.rules._batches import gain
from advisor.rules._workers import right_number
from advisor.rules.base import Advice, Change, Confidence, Evidence, Fact, Rule, Source, Tier
from advisor.units import share

MIN_WAIT = Threshold(
    0.05, "Gains of 5 % are the least that some 20 steps can confirm; who waits less cannot gain them."
)

MIN_CPU = Threshold(
    0.8,
    "Workers that compute for less of their time wait for storage or sleep: moving computation would not help them.",
)

MIN_EMPTY = Threshold(
    0.5, "Half of the fetches unserved means that the workers' rate is the limit; fewer means that it varies."
)

MAX_BUSY = Threshold(0.9, "A GPU busier than this has no time for preprocessing (assumption).")

# Share of the waiting that goes: from a part of the work moved to almost all of it (assumption).
REMOVED = (0.3, 0.6, 0.9)
EFFECT = remove_wait(REMOVED)

ON_GPU = """\
# torchvision's transforms v2 also work on batches that are on the GPU already; the loader only reads and decodes
augment = v2.Compose([v2.RandomResizedCrop(224), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True)])
inputs = augment(inputs.to("cuda", non_blocking=True))
"""

FLEET = """\
Let other machines make the batches and send them: Ray Data, tf.data service, or a process of your own a machine.
"""


def when(m: Metrics) -> Evidence | None:
    """If a GPU waits for its batch, half of the fetches find the queue empty, the workers compute all the time, there
    are no cores for more of them, and at least a twentieth of the step is expected to go if their work is moved,
    """
    m[device]
    facts = (
        Fact(data_wait_fraction, m[data_wait_fraction], m[MIN_WAIT]),
        Fact(queue_empty_fraction, m[queue_empty_fraction], m[MIN_EMPTY]),
        Fact(u_w, m[u_w], m[MIN_CPU]),
    )
    if any(each.value < (each.limit or 0.0) for each in facts) or right_number(m) > m[loader].num_workers:
        return None
    if gain(m, EFFECT) < m[MIN_WAIT]:
        return None
    return Evidence(facts, f"{m[loader].dataset} is read with num_workers={m[loader].num_workers}: no core is left")


def then(m: Metrics, found: Evidence) -> Advice:
    """then decode and augment on the GPU, or on other machines where the GPU has no time for it."""
    place = m[loader].place
    busy = m.get(gpu_busy_fraction)
    to_gpu = busy is None or busy <= m[MAX_BUSY]
    where = "on the GPU (NVIDIA DALI, torchvision's transforms v2)" if to_gpu else "on other machines"
    change = Change(
        language="python" if to_gpu else "text",
        code=ON_GPU if to_gpu else FLEET,
        file=place.file if place else None,
        line=place.line if place else None,
    )
    return Advice(
        then=f"Decode or augment {where}: the step waits {share(m[data_wait_fraction])} of its time for workers that "
        "have every core.",
        changes=(change,),
        basis="30, 60 or 90 % of the waiting goes, by how much of the work can be moved.",
        effect=EFFECT,
        risk="Medium: other libraries resize and decode a little differently; compare the loss. On the GPU the "
        "batches before augmentation take memory.",
    )


RULE = Rule(
    title="Move preprocessing off the CPU",
    tier=Tier.STALLS,
    when=when,
    then=then,
    confidence=Confidence.HEURISTIC,
    difficulty=3,
    sources=(
        Source("Mohan et al.: Analyzing and Mitigating Data Stalls in DNN Training, VLDB 2021"),
        Source("NVIDIA DALI documentation", "https://docs.nvidia.com/deeplearning/dali/user-guide/docs/"),
    ),
)
