"""What to do about a hot line, by the kind of work that it does."""

import re
from dataclasses import dataclass

from advisor.models.effects import Triple

SOME: Triple = (0.0, 0.5, 1.0)
"""Share of the line's time that is saved if the work is unknown or may be needed (assumption)."""
MOST: Triple = (0.4, 0.85, 1.0)
"""Share saved if the work can be done on whole tensors or once (assumption)."""
SELDOM: Triple = (0.8, 0.97, 1.0)
"""Share saved if the work is done every hundredth step (assumption: a part of it may have to stay in each step)."""

WORKERS = "If it needs only data, a Dataset can do it: loader workers (num_workers) then run it during the step."
IN_WORKERS = "Or let loader workers (num_workers) run it during the step."
"""The same advice for work that a Dataset already does."""


@dataclass(frozen=True, slots=True)
class LineKind:
    """One kind of work: its description, what to try, and the expected saving."""

    what: str
    """Description of the work, appended to "66% of a step is f() in train.py:41"; empty if only the line is known."""
    then: str
    """What to try; the part before the first colon or period is the advice's title."""
    removed: Triple = MOST
    """Share of the line's time that is saved."""
    code: str = ""
    """Python to copy; `{name}` is the function."""
    backward: bool = False
    """Whether the backward pass goes through the work, too, and becomes shorter with it."""

    @property
    def title(self) -> str:
        """Return what to do in one line."""
        return re.split(r"[.:](?: |$)", self.then)[0]


EVERY = "if step % 100 == 0:\n    {name}  # as before\n"

BATCHES = """\
from torch.utils.data import DataLoader, IterableDataset


class Batches(IterableDataset):
    def __iter__(self):
        return iter({name})  # with several workers: seed by torch.utils.data.get_worker_info().id


loader = DataLoader(Batches(), batch_size=None, num_workers=1)  # makes batches during the step
"""

KINDS = {
    "": LineKind(
        "",
        f"Make it faster, do it less often, or take it out of the loop: use operations on whole tensors. {WORKERS}",
        SOME,
    ),
    "loop": LineKind(
        ", a loop in Python",
        f"Replace the loop over samples or elements by tensor operations: one call handles the whole batch. {WORKERS}",
        backward=True,
    ),
    "generator": LineKind(
        ", a generator that makes batches while the model waits",
        "Move it into an IterableDataset with a loader worker: the worker makes the next batch during the step. Also "
        "replace loops over elements by tensor operations.",
        (0.3, 0.8, 1.0),
        BATCHES,
    ),
    "parameters": LineKind(
        ", a loop over the model's parameters",
        "Handle all parameters in one call: AveragedModel of torch.optim.swa_utils or torch._foreach_lerp_ averages "
        "them, clip_grad_norm_ returns the norm of all gradients. Or do it every hundredth step.",
    ),
    "sampler": LineKind(
        ", a sampler, which runs in the training process even if the loader has workers",
        "Draw the indices of a whole epoch at once: torch.randperm and torch.multinomial do so in one call. Update "
        "weights every hundredth step.",
    ),
    "file": LineKind(
        ", which reads or writes a file",
        "Write every hundredth step, or read once before the loop: opening and rewriting a file takes time at each "
        f"step, and more as it grows. {WORKERS}",
    ),
    "one_row": LineKind(
        ", which calls the model with one row at a time",
        "Give the model several rows in one call: the observations of several environments, or of a whole episode.",
        (0.3, 0.75, 1.0),
        "rows = torch.stack(observations)  # of all environments\nactions = model(rows)  # one call for all of them\n",
        backward=True,
    ),
    "evaluation": LineKind(
        ", which calls the model many times without gradients: an evaluation in each step",
        "Evaluate every hundredth step, or on a part of the data.",
        SELDOM,
        EVERY,
    ),
    "sleep": LineKind(", where time.sleep() waits", "Take the sleep out of the loop.", (0.5, 1.0, 1.0)),
    "gc": LineKind(
        ", which runs Python's garbage collector", "Call gc.collect() once per epoch, or not at all.", SELDOM
    ),
    "lock": LineKind(
        ", which waits for another thread or process",
        "Make the work that it waits for faster: threads that run Python code take turns. Or let several loader "
        "workers (num_workers) do it.",
        SOME,
    ),
    "float64": LineKind(", in float64", "Use float32 if it is precise enough: float64 takes twice the memory.", SOME),
    "lists": LineKind(
        ", which makes tensors from Python lists",
        "Keep the data in tensors or NumPy arrays: torch.from_numpy copies nothing, torch.tensor() visits each "
        f"element of a list. {WORKERS}",
        (0.3, 0.8, 1.0),
    ),
    "values": LineKind(
        ", which reads single values from tensors",
        "Compute it with tensor operations (torch.sort, cumsum, sum), or every hundredth step.",
        (0.4, 0.95, 1.0),
        EVERY,
    ),
    "search": LineKind(
        ", where index() searches a list",
        "Look up positions in a dictionary: index() scans the list at each call. Create the dictionary once.",
    ),
    "copy": LineKind(
        ", which deep-copies objects",
        "Copy only objects that change: deepcopy visits every object. For weights, use torch.no_grad() and copy_().",
    ),
    "PIL": LineKind(
        ", in Pillow",
        "Decode once and store smaller images. torchvision.io.decode_jpeg may be faster, and Image.draft() reads a "
        f"JPEG at a smaller size. {WORKERS}",
        SOME,
    ),
    "cv2": LineKind(
        ", in OpenCV",
        "Store smaller images, or read them at the required size: cv2.IMREAD_REDUCED_COLOR_2. Call "
        f"cv2.setNumThreads(0) in workers. {WORKERS}",
        SOME,
    ),
    "pandas": LineKind(
        ", in pandas",
        "Convert the frame once, before the loop: torch.from_numpy(frame.to_numpy()). Indexing a frame by row builds a "
        "Series each time.",
    ),
    "numpy": LineKind(", in NumPy", "Use whole arrays, or convert to tensors once, before the loop.", SOME),
    "json": LineKind(
        ", parsing JSON",
        f"Parse once, before the loop: keep tensors or a memory-mapped array. orjson may parse faster. {WORKERS}",
    ),
    **dict.fromkeys(
        ("gzip", "bz2", "lzma", "zipfile"),
        LineKind(
            ", unpacking compressed files",
            f"Unpack once, before the training, or compress with Zstandard: it may unpack faster. {WORKERS}",
        ),
    ),
    **dict.fromkeys(
        ("csv", "pickle"),
        LineKind(", reading files", f"Read once, before the loop, into tensors or a memory-mapped array. {WORKERS}"),
    ),
    "re": LineKind(
        ", with regular expressions",
        "Parse the text once, before the training, and store the result. If that is not possible, avoid patterns "
        "that backtrack (nested quantifiers).",
    ),
    "tokenizers": LineKind(
        ", which tokenizes",
        "Tokenize once, before the training, with a fast tokenizer: map(batched=True) of datasets does. Or do it in "
        "loader workers, with TOKENIZERS_PARALLELISM=false.",
    ),
    **dict.fromkeys(
        ("sklearn", "torchmetrics"),
        LineKind(
            ", a metric", "Collect predictions at each step, and compute the metric once per epoch.", SELDOM, EVERY
        ),
    ),
    **dict.fromkeys(
        ("matplotlib", "seaborn"),
        LineKind(", which plots", "Plot every hundredth step, or after the training.", SELDOM, EVERY),
    ),
    **dict.fromkeys(
        ("logging", "tensorboard", "wandb", "mlflow"),
        LineKind(", which logs", "Log every hundredth step.", SELDOM, EVERY),
    ),
}
"""Kinds of work by the name that `advisor.metrics.lines.kind_of` returns."""
