"""Collation takes a large part of the time to prepare a batch.

A collate function that loops over Python lists, or pads and stacks sample by sample, handles every number as a Python
object. If samples contain lists, torch's default collate function creates one tensor per list position. A single array
operation can collate the whole batch. A data set that returns a whole batch (`__getitems__`) needs no collation at all.

Wrong when: the collate function does other work, such as augmenting or tokenizing the whole batch. Then make that work
faster, or do it once and store the result.

Source: PyTorch: torch.utils.data, collate_fn, https://docs.pytorch.org/docs/stable/data.html
Source: Mohan et al.: Analyzing and Mitigating Data Stalls in DNN Training, VLDB 2021
"""

from advisor.metrics import Metrics, Threshold, input, step
from advisor.models.effects import faster_batches
from advisor.models.state import Effect
from advisor.rules._workers import MIN_WAIT, gain
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, evidence, measure, python
from advisor.units import seconds, share

RULE = Rule(
    "Vectorize collation", Area.STALLS, Confidence.EMPIRICAL, difficulty=2, supersedes=("data-offload-preprocess",)
)

MIN_COLLATE = Threshold(0.4, "Below 40 %, loading the samples costs more than collating them (assumption).")

# Share of the collation time that is saved. Measured with arrays instead of lists of 4096 numbers: 15.7 to 5.5 ms per
# step.
REMOVED = (0.5, 0.8, 0.95)

# Names of torch's collate functions; the second one is for data sets that return whole batches, and collates nothing.
DEFAULT = "default_collate"
CONVERTS = "default_convert"

CODE = """\
import numpy as np
import torch


def collate(samples):  # samples: what the data set returned, arrays rather than lists
    inputs, targets = zip(*samples)
    return torch.from_numpy(np.stack(inputs)), torch.as_tensor(targets)
"""

WHOLE = """\
# in the data set: the samples of a batch in one go, and DataLoader(..., collate_fn=lambda batch: batch)
def __getitems__(self, indices):
    return self.inputs[indices], self.targets[indices]
"""


def when(m: Metrics) -> Evidence | None:
    """If the step waits for data, samples are collated, collation takes at least 40 % of batch preparation, and
    speeding it up should save at least 5 % of the step,
    """
    if m[input.loader].collate == CONVERTS:
        return None
    facts = measure(m, step.data_wait_fraction, ">=", MIN_WAIT), measure(m, input.collate_share, ">=", MIN_COLLATE)
    reason = evidence(*facts, note=f"{_name(m)} collates {m[input.loader].dataset}")
    return reason if reason and gain(m, _effect(m)) >= m[MIN_WAIT] else None


def then(m: Metrics, found: Evidence) -> Advice:
    """then collate batches with one array operation."""
    codes, tensors = (WHOLE,) if DEFAULT in _name(m) else (CODE, WHOLE), m.get(input.batch_tensors)
    # torch creates one tensor per list position
    tensor_note = "" if tensors is None else f", into {tensors} tensor{'s' if tensors != 1 else ''}"
    return Advice(
        then=f"Vectorize {_name(m)}: {share(m[input.collate_share])} of the {seconds(m[input.batch_time])} per batch "
        f"is collation{tensor_note}. Return arrays from the data set, or the whole batch at once.",
        changes=tuple(python(code, m[input.loader].place) for code in codes),
        basis="Vectorizing saves 50, 80 or 95 % of the collation time; the step's wait shrinks accordingly.",
        effect=_effect(m),
        memory=0,
        host_memory=0,
        risk="Low: the same numbers; compare one batch before and after, including its dtypes.",
    )


def _effect(m: Metrics) -> Effect:
    return faster_batches(min(1.0, m[input.collate_share]), REMOVED)


def _name(m: Metrics) -> str:
    return m[input.loader].collate or "the collate function"
