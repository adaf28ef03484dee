"""Each sample is read from many small files.

Every file is looked up, opened, read and closed separately; on network storage, each of these is a round trip. A shard
stores thousands of samples one after the other and is read in a few large pieces.

Wrong when: the files are in the page cache and other work (decoding, augmentation) dominates batch preparation, or
samples must be picked at random from a data set that is too large to shard. Opened files are counted, not timed: to
check, replace reading by zeros and time a batch.

Source: Mohan et al.: Analyzing and Mitigating Data Stalls in DNN Training, VLDB 2021
Source: WebDataset, https://github.com/webdataset/webdataset
"""

from advisor.metrics import Metrics, Threshold, input, step
from advisor.models.effects import faster_batches
from advisor.rules._workers import MIN_WAIT, gain, right_number
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, evidence, measure, python
from advisor.units import digits, seconds

RULE = Rule(
    "Read samples from shards", Area.STALLS, Confidence.HEURISTIC, difficulty=2, supersedes=("data-offload-preprocess",)
)

MIN_FILES = Threshold(
    8, "An image, its label and a few side files are common; more files point to the storage format (assumption)."
)

# Share of a batch's time that is saved: reading, which is not timed, is assumed to take half, 0.8 or all of it, and
# becomes 1.5, 3 or 8 times as fast. Measured with 64 files of 1 kB per sample: 36.1 to 10.7 ms per step.
REMOVED = (0.5 * (1 - 1 / 1.5), 0.8 * (1 - 1 / 3), 1 - 1 / 8)
EFFECT = faster_batches(1.0, REMOVED, reading=True)

CODE = """\
import numpy as np
import torch

# once: all samples in one file (WebDataset, Parquet or HDF5 serve as well)
samples = np.lib.format.open_memmap("samples.npy", "w+", np.float32, (len(dataset), *dataset[0][0].shape))
for index, (sample, _) in enumerate(dataset):
    samples[index] = sample
samples.flush()


class Samples(torch.utils.data.Dataset):
    def __init__(self, targets):
        self.samples, self.targets = np.load("samples.npy", mmap_mode="r"), targets

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        return torch.from_numpy(self.samples[index].copy()), self.targets[index]
"""


def when(m: Metrics) -> Evidence | None:
    """If the step waits for data, a sample is read from at least 8 files, faster reading should save at least 5 %
    of the step, and more workers would not help,
    """
    wait = measure(m, step.data_wait_fraction, ">=", MIN_WAIT)
    files = measure(m, input.files_per_sample, ">=", MIN_FILES)
    reason = evidence(wait, files, note=f"{m[input.loader].dataset} opens {digits(files.value)} files per sample")
    if not reason or right_number(m) > m[input.loader].num_workers:
        return None
    return reason if gain(m, EFFECT) >= m[MIN_WAIT] else None


def then(m: Metrics, found: Evidence) -> Advice:
    """then store the samples in shards, which are read in large pieces."""
    return Advice(
        then=f"Keep the samples in shards (WebDataset, TFRecord, Parquet, HDF5, a memory map), on a local disk if you "
        f"can: {found.note}, and a batch takes {seconds(m[input.batch_time])}.",
        changes=(python(CODE, m[input.loader].place),),
        basis="Reading becomes 1.5, 3 or 8 times as fast. Files were only counted, so reading is assumed to take 50, "
        "80 or 100 % of a batch's time.",
        effect=EFFECT,
        memory=0,
        risk="Medium: the samples are stored twice, and an error in writing the shards affects every later run. "
        "Shuffle within and between shards.",
    )
