"""Read py-spy's samples of one process, and determine the phase of each sample.

Only the sample's own frames determine its phase: library functions that do nothing else. A sample without such a frame
is "other", never a guess.
"""

import json
import linecache
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import profiler

Frame = tuple[str, int, str, str]
"""File, line, function, and the library that it belongs to: "" for the program's own code, "python" for the standard
library, else the package."""

MOST_FRAMES = 24
"""Maximum frames kept of a stack: the outermost ones and the innermost ones."""

OURS = str(Path(profiler.__file__).parent)

_PACKAGE = re.compile(r"/(?:site|dist)-packages/(.*)$")
_STANDARD = re.compile(r"/lib(?:64)?/python3\.\d+t?/(.*)$")
_COMPREHENSIONS = frozenset(("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"))
_MAIN = re.compile(r"thread \((\w+)\)(?:: (.*))?$")

# Phase by file (below site-packages) and function. The outermost mark in a stack counts, because a phase includes all
# calls inside it; but a closure passed to the optimizer's step contains the forward and backward pass.
_LOADER = "torch/utils/data/dataloader.py"
_MARKS: dict[tuple[str, str], str] = {
    (_LOADER, "__next__"): "data_wait",
    (_LOADER, "__iter__"): "epoch_start",
    ("torch/nn/modules/module.py", "_call_impl"): "forward",
    ("torch/nn/modules/module.py", "_wrapped_call_impl"): "forward",
    ("torch/_tensor.py", "backward"): "backward",
    ("torch/autograd/__init__.py", "backward"): "backward",
    ("torch/serialization.py", "save"): "checkpoint_save",
    ("safetensors/torch.py", "save_file"): "checkpoint_save",
    ("torch/distributed/checkpoint/state_dict_saver.py", "save"): "checkpoint_save",
    ("lightning/pytorch/loops/evaluation_loop.py", "run"): "evaluation",
    ("pytorch_lightning/loops/evaluation_loop.py", "run"): "evaluation",
    ("transformers/trainer.py", "evaluation_loop"): "evaluation",
}
_FOLDERS: tuple[tuple[str, str], ...] = (
    ("torch/utils/tensorboard/", "logging"),
    ("tensorboard/", "logging"),
    ("tensorboardX/", "logging"),
    ("wandb/", "logging"),
    ("mlflow/", "logging"),
    ("matplotlib/", "logging"),
    ("seaborn/", "logging"),
    ("tqdm/", "logging"),
    ("sklearn/metrics/", "metric"),
    ("torchmetrics/", "metric"),
    ("torcheval/", "metric"),
)
_UPDATES = frozenset(("step", "wrapper", "profile_hook_step", "_use_grad"))
_SCHEDULER = "torch/optim/lr_scheduler.py"
_WORKER = "torch/utils/data/_utils/worker.py"
_FETCH = "torch/utils/data/_utils/fetch.py"


class Span(NamedTuple):
    """A stretch of time in which a thread was seen in one stack; seconds since py-spy's start."""

    start: float
    end: float
    frames: tuple[Frame, ...]
    """Outermost first."""
    phase: str


def read(text: str, pid: int, *, worker: bool) -> Iterator[Span]:
    """Yield the stretches of a process's main thread, from py-spy's Chrome trace.

    Raises:
        ValueError: the text is not such a trace.
    """
    events = json.loads(text)
    if not isinstance(events, list):
        raise ValueError("not a list of events")
    thread = _main_thread(events, pid)
    open_frames: list[tuple[str, int, str]] = []
    start = 0.0
    results: dict[tuple[tuple[str, int, str], ...], tuple[tuple[Frame, ...], str]] = {}
    for event in events:
        if event["tid"] != thread:
            continue
        now = event["ts"] / 1e6
        if open_frames and now - start > 1e-3:
            key = tuple(open_frames)
            if key not in results and _is_own_work(*key[-1][:2]):
                results[key] = (), "other"
            elif key not in results:
                results[key] = (
                    (shortened(_in_worker(key)), worker_phase(key)) if worker else (shortened(key), phase(key))
                )
            if results[key][0]:  # otherwise it is starting, ending, or in our hooks
                yield Span(start, now, *results[key])
            start = now
        elif not open_frames:
            start = now
        if event["ph"] == "B":
            location = event["args"]
            open_frames.append((str(location["filename"]), int(location["line"] or 0), str(event["name"])))
        elif open_frames:
            open_frames.pop()


def _main_thread(events: Sequence[Any], pid: int) -> object:
    """Return the main thread's ID in the trace; None if it was not seen.

    In a container, the kernel's ID of a thread may differ from the process's own; then the thread's name decides.
    """
    named_thread = None
    for event in events:
        match = _MAIN.match(event["name"])
        if match and match[1] == str(pid):
            return event["tid"]
        if match and match[2] == "MainThread":
            named_thread = event["tid"]
    return named_thread


def phase(frames: Sequence[tuple[str, int, str]]) -> str:
    """Return the phase of a sample of the training process."""
    result = "other"
    for file, line, name in frames:
        mark = _mark(_frame(file, line, name))
        if mark is None:
            continue
        if result == "other":
            result = mark
        elif result == "optimizer" and mark in ("forward", "backward"):
            return mark
    return result


def worker_phase(frames: Sequence[tuple[str, int, str]]) -> str:
    """Return what a loader worker does: "fetch", "collate", "idle" (no request is pending) or "other"."""
    activity = "other"
    for (file, _, name), (callee_file, _, callee) in zip(frames, (*frames[1:], ("", 0, "")), strict=False):
        if file.endswith(_FETCH) and name.endswith("fetch"):
            return "collate" if "collate" in callee else "fetch"
        if file.endswith(_WORKER) and name.endswith("_worker_loop"):
            activity = "idle" if callee_file.endswith("multiprocessing/queues.py") else "other"
    return activity


def _in_worker(frames: Sequence[tuple[str, int, str]]) -> Sequence[tuple[str, int, str]]:
    """Return a worker's own frames: frames above its loop belong to the process that forked it."""
    for position, (file, _, name) in enumerate(frames):
        if file.endswith(_WORKER) and name.endswith("_worker_loop"):
            return frames[position:]
    return frames


def _mark(frame: Frame) -> str | None:
    file, _, function, library = frame
    if library in ("", "python"):
        return "logging" if (library, file) == ("python", "logging/__init__.py") else None
    if _is_iteration(frame):
        return None
    name = function.rpartition(".")[2]
    if (file, name) in _MARKS:
        return _MARKS[file, name]
    if file.startswith("torch/optim/"):  # not an update: zero_grad, construction, a scheduler's step
        return "optimizer" if name in _UPDATES and file != _SCHEDULER else None
    return next((mark for folder, mark in _FOLDERS if file.startswith(folder)), None)


def shortened(frames: Sequence[tuple[str, int, str]]) -> tuple[Frame, ...]:
    """Return the frames to keep: the program's own ones, and the first and last one of each library.

    Our own frames are left out. So are comprehensions, lambdas and progress bars around a loader: their time belongs to
    the function that contains them.
    """
    result: list[Frame] = []
    run = 0
    for file, line, name in frames:
        if not file or file.startswith((f"{OURS}/", "<")) or name.rpartition(".")[2] in _COMPREHENSIONS:
            continue
        frame = _frame(file, line, name)
        if _is_iteration(frame) or (result and _is_lambda_of(frame, result[-1])):
            continue
        run = run + 1 if frame[3] and result and result[-1][3] == frame[3] else 1
        if run > 2:
            result.pop()
        result.append(frame)
    if len(result) > MOST_FRAMES:
        half = MOST_FRAMES // 2
        result[half:-half] = []
    return tuple(result)


def _is_own_work(file: str, line: int) -> bool:
    """Return whether an innermost frame is one of our hooks, except where it calls the wrapped function.

    A thread that loses its core often does so in a system call, such as ours for CPU times: the program does not spend
    its time there.
    """
    path = file.removeprefix("<").partition(" (importlib")[0]
    return path.startswith(f"{OURS}/") and "plain(" not in linecache.getline(path, line)


def _is_iteration(frame: Frame) -> bool:
    """Return whether a progress bar fetches its next item here; it draws itself in other functions."""
    return frame[3] == "tqdm" and frame[2].rpartition(".")[2] == "__iter__"


def _is_lambda_of(frame: Frame, caller: Frame) -> bool:
    """Return whether the frame is a lambda that its own function calls, such as a key to sort by."""
    outer, _, name = frame[2].rpartition(".")
    # Before Python 3.11, names do not include the enclosing function.
    return name == "<lambda>" and frame[0] == caller[0] and (outer or caller[2]) == caller[2] != "<module>"


def _frame(file: str, line: int, name: str) -> Frame:
    name = name.replace(".<locals>", "")
    package = _PACKAGE.search(file)
    if package is not None:
        return package[1], line, name, package[1].partition("/")[0].removesuffix(".py")
    standard = _STANDARD.search(file)
    if standard is not None:
        return standard[1], line, name, "python"
    return file, line, name, ""
