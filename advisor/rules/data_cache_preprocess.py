"""The same samples are preprocessed alike in every epoch, and the training waits for it.

Decoding, resizing, tokenizing: whatever of it uses no random numbers gives the same result each time. Done once and
kept - before the training, on a local NVMe disk, or in memory as far as that goes - a sample costs only its reading.

Nothing outside the program can know which stage is the same every time, so the program has to say it: with
`profiler.region("preprocess")` around that stage in the data set's `__getitem__`.

Wrong when: the region holds random augmentation, which has to differ from epoch to epoch; or what is kept is so much
larger than the source (images decoded) that reading it takes longer. If only a part fits, keep a part for good: a
cache that evicts, such as the page cache, misses everything when a data set is read in turn.
"""

from __future__ import annotations

from advisor.metrics.base import Metrics, Threshold
from advisor.metrics.input import loader, t_w
from advisor.metrics.preprocessing import epochs_begun, preprocess_share
from advisor.metrics.step import data_wait_fraction
from advisor.models.effects import faster_batches
from advisor.rules._batches import gain
from advisor.rules.base import Advice, Change, Confidence, Evidence, Fact, Rule, Source, Tier
from advisor.units import seconds, share

MIN_WAIT = Threshold(
    0.05, "Gains of 5 % are the least that some 20 steps can confirm; who waits less cannot gain them."
)

MIN_STAGE = Threshold(0.4, "Below two fifths the rest of making a batch costs more (assumption).")

MIN_EPOCHS = Threshold(2, "A data set that is gone through once has nothing to keep.")

# Share of the stage that goes: what is kept has to be read again (assumption).
REMOVED = (0.6, 0.9, 1.0)

CODE = """\
import os
import torch


class Kept(torch.utils.data.Dataset):
    \"\"\"The preprocessed samples of a data set, each made once and kept in a folder on a local disk.\"\"\"

    def __init__(self, samples, folder):
        self.samples, self.folder = samples, folder
        os.makedirs(folder, exist_ok=True)

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path = os.path.join(self.folder, f"{index}.pt")
        if not os.path.exists(path):
            beside = f"{path}.{os.getpid()}"
            torch.save(self.samples[index], beside)
            os.replace(beside, path)  # whole or not at all, whichever worker is first
        return torch.load(path)  # tensors, numbers, text; for anything else of yours weights_only=False


# loader = DataLoader(Augmented(Kept(dataset, "/local/nvme/kept")), ...): random augmentation comes after
"""


def when(m: Metrics) -> Evidence | None:
    """If the step waits for its batch, two fifths or more of making one lie in what the program has named as
    preprocessing, at least a twentieth of the step is expected to go with that, and the data set is gone through more
    than once,
    """
    wait, stage = m[data_wait_fraction], m[preprocess_share]
    if wait < m[MIN_WAIT] or stage < m[MIN_STAGE] or m[epochs_begun] < m[MIN_EPOCHS]:
        return None
    if gain(m, faster_batches(stage, REMOVED)) < m[MIN_WAIT]:
        return None
    return Evidence(
        (
            Fact(data_wait_fraction, wait, m[MIN_WAIT]),
            Fact(preprocess_share, stage, m[MIN_STAGE]),
            Fact(epochs_begun, m[epochs_begun], m[MIN_EPOCHS]),
        ),
        f"{m[loader].dataset} preprocesses each sample in every epoch",
    )


def then(m: Metrics, found: Evidence) -> Advice:
    """then preprocess once, and keep the result."""
    place = m[loader].place
    file, line = (place.file, place.line) if place else (None, None)
    return Advice(
        then=f"Preprocess offline, or keep each sample as it is first made: {share(m[preprocess_share])} of the "
        f"{seconds(m[t_w])} a batch takes is preprocessing that is the same in every epoch.",
        changes=(Change(language="python", code=CODE, file=file, line=line),),
        basis="A batch takes that much less to make if 60, 90 or 100 % of the preprocessing goes; the step waits as "
        "much less.",
        effect=faster_batches(m[preprocess_share], REMOVED),
        memory=0,
        risk="Medium: it takes room on a disk, has to be made anew when the preprocessing changes, and must hold "
        "nothing random.",
    )


RULE = Rule(
    title="Preprocess once, not every epoch",
    tier=Tier.STALLS,
    when=when,
    then=then,
    confidence=Confidence.EMPIRICAL,
    difficulty=2,
    sources=(Source("Mohan et al.: Analyzing and Mitigating Data Stalls in DNN Training, VLDB 2021"),),
    supersedes=("data-offload-preprocess",),
)
