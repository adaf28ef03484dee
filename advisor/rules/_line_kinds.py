"""What to do about a hot line, by the kind of work that it does."""

from dataclasses import dataclass

from advisor.models.effects import Triple

SOME: Triple = (0.0, 0.5, 1.0)
"""Of the line's time goes, where nothing shows what it does, or the work is needed (assumption)."""
MOST: Triple = (0.4, 0.85, 1.0)
"""Where the same can be done on whole tensors or once (assumption)."""
SELDOM: Triple = (0.8, 0.97, 1.0)
"""Where it is done every hundredth step instead (assumption: a part of it may have to stay in each step)."""

WORKERS = "or, if it needs only data, do it in a Dataset, whose loader workers (num_workers) run it during the step"
IN_WORKERS = "or let loader workers (num_workers) run it during the step"
"""The same of what a Dataset does already."""


@dataclass(frozen=True, slots=True)
class LineKind:
    """What is known of one kind of work."""

    what: str
    """What it is, to follow "66% of a step is f() in train.py:41"; empty if only the line is known."""
    then: str
    """What to try."""
    removed: Triple = MOST
    """Share of the line's time that goes."""
    code: str = ""
    """Python to copy; `{name}` is the function."""
    backward: bool = False
    """Whether the backward pass consists of what it computes, too."""


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
        f"Make it faster, do it less often, or take it out of the loop: use operations on whole tensors, {WORKERS}.",
        SOME,
    ),
    "loop": LineKind(
        ", a loop in Python",
        f"Replace the loop over samples or elements by tensor operations on the whole batch, {WORKERS}.",
        backward=True,
    ),
    "generator": LineKind(
        ", a generator that makes batches while the model waits",
        "Move it into an IterableDataset with a loader worker, which makes the next batch during the step. Also "
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
        "Draw the indices of a whole epoch at once, by tensor operations (torch.randperm, torch.multinomial), and "
        "update weights every hundredth step.",
    ),
    "file": LineKind(
        ", which reads or writes a file",
        "Write every hundredth step, and append: rewriting a growing file takes longer each time. Read a file once, "
        f"before the loop, {WORKERS}.",
    ),
    "one_row": LineKind(
        ", which calls the model with one row at a time",
        "Give the model the observations of several environments, or of a whole episode, in one call.",
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
        "Make the work that it waits for faster, or let several loader workers (num_workers) do it: threads that run "
        "Python code take turns.",
        SOME,
    ),
    "float64": LineKind(", in float64", "Use float32 if it is precise enough: float64 takes twice the memory.", SOME),
    "lists": LineKind(
        ", which makes tensors of Python lists",
        "Keep the data in tensors or NumPy arrays (torch.from_numpy copies nothing): torch.tensor() visits each "
        f"element of a list; {WORKERS}.",
        (0.3, 0.8, 1.0),
    ),
    "values": LineKind(
        ", which takes values out of tensors",
        "Compute it with tensor operations (torch.sort, cumsum, sum), or every hundredth step.",
        (0.4, 0.95, 1.0),
        EVERY,
    ),
    "search": LineKind(
        ", where index() searches a list",
        "Make a dictionary of positions once, before the loop, and look it up there: index() scans the list.",
    ),
    "copy": LineKind(
        ", which copies objects deeply",
        "Copy only what changes: deepcopy visits every object. For weights, use torch.no_grad() and copy_().",
    ),
    "PIL": LineKind(
        ", in Pillow",
        "Decode once and store smaller images, or decode with torchvision.io.decode_jpeg, which may be faster; "
        f"Image.draft() reads a JPEG at a smaller size; {WORKERS}.",
        SOME,
    ),
    "cv2": LineKind(
        ", in OpenCV",
        "Read images at the required size (cv2.IMREAD_REDUCED_COLOR_2), store smaller images, and call "
        f"cv2.setNumThreads(0) in workers; {WORKERS}.",
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
        f"Parse once, before the loop, and keep tensors or a memory-mapped array; or try orjson, "
        f"which may parse faster; {WORKERS}.",
    ),
    **dict.fromkeys(
        ("gzip", "bz2", "lzma", "zipfile"),
        LineKind(
            ", unpacking compressed files",
            f"Unpack once, before the training, or compress with Zstandard, which may unpack faster; {WORKERS}.",
        ),
    ),
    **dict.fromkeys(
        ("csv", "pickle"),
        LineKind(", reading files", f"Read once, before the loop, into tensors or a memory-mapped array; {WORKERS}."),
    ),
    "re": LineKind(
        ", with regular expressions",
        "Parse the text once, before the training, and store the result. If that is not possible, avoid patterns "
        "that backtrack (nested quantifiers).",
    ),
    "tokenizers": LineKind(
        ", which tokenizes",
        "Tokenize once, before the training (datasets: map(batched=True)), with a fast tokenizer; or in loader "
        "workers, with TOKENIZERS_PARALLELISM=false.",
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
"""By the kind that `advisor.metrics.lines.kind_of` gives."""
