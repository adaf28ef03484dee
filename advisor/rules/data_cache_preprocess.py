"""Every epoch repeats the same preprocessing of the same samples, and training waits for it.

Decoding, resizing and tokenizing give the same result each time, unless they use random numbers. Do that work once and
keep the result: before training, on a local NVMe disk, or in memory if it fits. Then only reading the sample remains.

A profiler cannot see which stage gives the same result every time. Mark that stage with `profiler.region("preprocess")`
in the data set's `__getitem__`.

Wrong when: the region contains random augmentation, which must differ between epochs; or the stored result is so much
larger than the source (decoded images) that reading it takes longer. If only a part of the data fits, cache a fixed
part: a cache that evicts, such as the page cache, misses every sample of a data set that is read in order.

Source: Mohan et al.: Analyzing and Mitigating Data Stalls in DNN Training, VLDB 2021
"""

from advisor.metrics import Metrics, Threshold, input, preprocessing, step
from advisor.models.effects import faster_batches
from advisor.rules._workers import MIN_WAIT, gain
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, evidence, measure, python
from advisor.units import seconds, share

RULE = Rule(
    "Preprocess once, not every epoch",
    Area.STALLS,
    Confidence.EMPIRICAL,
    difficulty=2,
    supersedes=("data-offload-preprocess",),
)

MIN_STAGE = Threshold(0.4, "Below 40 %, the rest of batch preparation costs more (assumption).")

MIN_EPOCHS = Threshold(2, "A data set that is read only once does not benefit from a cache.")

# Share of the stage's time that is saved: cached results must be read again (assumption).
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
            draft = f"{path}.{os.getpid()}"
            torch.save(self.samples[index], draft)
            os.replace(draft, path)  # atomic: several workers may write the same sample
        return torch.load(path)  # tensors, numbers, text; other objects need weights_only=False


# loader = DataLoader(Augmented(Kept(dataset, "/local/nvme/kept")), ...): random augmentation comes after
"""


def when(m: Metrics) -> Evidence | None:
    """If the step waits for data, regions marked as preprocessing take at least 40 % of batch preparation, caching
    their results should save at least 5 % of the step, and the data set is read more than once,
    """
    wait = measure(m, step.data_wait_fraction, ">=", MIN_WAIT)
    stage = measure(m, preprocessing.preprocess_share, ">=", MIN_STAGE)
    if not (wait.holds and stage.holds) or m[preprocessing.epochs_begun] < m[MIN_EPOCHS]:
        return None
    if gain(m, faster_batches(stage.value, REMOVED)) < m[MIN_WAIT]:
        return None
    note = f"{m[input.loader].dataset} preprocesses each sample in every epoch"
    return evidence(wait, stage, measure(m, preprocessing.epochs_begun, ">=", MIN_EPOCHS), note=note)


def then(m: Metrics, found: Evidence) -> Advice:
    """then preprocess once and keep the result."""
    return Advice(
        then=f"Preprocess offline, or cache each sample when it is first made: "
        f"{share(m[preprocessing.preprocess_share])} of the {seconds(m[input.batch_time])} per batch is preprocessing "
        "that is the same in every epoch.",
        changes=(python(CODE, m[input.loader].place),),
        basis="Caching saves 60, 90 or 100 % of the preprocessing time; the step's wait shrinks accordingly.",
        effect=faster_batches(m[preprocessing.preprocess_share], REMOVED),
        memory=0,
        risk="Medium: it needs disk space, must be rebuilt when the preprocessing changes, and must not contain "
        "anything random.",
    )
