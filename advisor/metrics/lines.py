"""Lines of the program's own code that take the most time, from sampled Python stacks.

Each sample of the training process counts for one place: the function that the training loop calls, or the line of the
loop itself. A function that contains more than one phase of the step belongs to the loop.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import PurePath

from advisor.metrics import step
from advisor.metrics.base import Metric, Metrics, Missing, known, metric
from advisor.metrics.between import evaluation_share
from advisor.metrics.settings import on_cpu, primary_rank
from advisor.runs.profile import Rank
from advisor.runs.source import is_cell, source, to_parse
from advisor.runs.syntax import Syntax, syntax
from profiler.grouping import totals
from profiler.schema import BETWEEN, Stack

Z = 1.96
"""Half the width of a 95 % interval, in standard deviations."""

MOST_PLACES = 12
"""Largest number of places kept per phase."""

INNER = 0.8
"""Share of a function's time from which a function that it calls is named instead ..."""

MOSTLY = 0.5
"""... and from which that function is named in addition, with its line."""

NEAR = 0.7
"""Share of the hottest line's time from which another line is about as hot: samples cannot distinguish them."""

LITTLE = 0.3
"""Share of a function's time below which its own lines are not conclusive; lines that call others then count, too."""

OWN = 0.7
"""Share of a function's time spent in no other function of the program, from which its hottest line is the cause."""

WORTH_READING = 0.05
"""Share of the step from which the source around a place is read."""

MANY_FORWARDS = 4.0
"""Model calls per backward pass from which some are evaluations or single rows; a GAN or a teacher has 2 or 3."""

EVALUATES = 0.05
"""Share of the run in evaluation from which passes without gradients count as that evaluation."""

KNOWN = {
    **dict.fromkeys(("PIL", "cv2", "json", "gzip", "re", "pandas", "matplotlib", "sklearn", "torchmetrics", "wandb")),
    **dict.fromkeys(("tensorboard", "logging", "copy", "bz2", "lzma", "csv", "pickle", "zipfile", "mlflow")),
    **dict.fromkeys(("tqdm", "seaborn"), "logging"),
    **dict.fromkeys(("threading", "queue"), "lock"),
    **dict.fromkeys(("transformers", "tokenizers", "sentencepiece", "tiktoken"), "tokenizers"),
}
"""Libraries and standard modules that show a line's kind of work, and the kind's name if it differs (else None)."""

CALLS = {
    **{"time.sleep": "sleep", "gc.collect": "gc", "acquire": "lock", "double": "float64", "deepcopy": "copy"},
    "index": "search",
    **dict.fromkeys(("print", "tqdm.write"), "logging"),
    **dict.fromkeys(("dump", "dumps", "to_csv", "writerow", "writerows"), "file"),
}
"""Kind of work by the function that the hottest line calls."""

LISTS = frozenset(("torch.tensor", "torch.as_tensor", "torch.FloatTensor", "torch.LongTensor"))
"""Functions that visit each element of a Python list."""

VALUES = frozenset(("item", "cpu", "numpy", "tolist"))
"""Methods that return a tensor's values to Python."""

MEASURED: dict[str, Metric[float]] = {
    **dict.fromkeys(("other", "logging", "metric"), step.other_fraction),
    "forward": step.forward_fraction,
    "backward": step.backward_fraction,
    "optimizer": step.optimizer_fraction,
    "data_wait": step.data_wait_fraction,
}
"""Metric that hooks measure, for each phase of the stacks."""

TIMED_ALIKE = frozenset(("data_wait", "backward", "optimizer"))
"""Phases that are a single library call, both for stacks and for hooks."""

LOOPS = frozenset(("forward", "backward", "optimizer", "data_wait"))
"""Phases of a training loop. A function that contains two of them is part of the loop."""

TRAINS = frozenset(("backward", "optimizer"))
"""Phases that only the training loop calls."""

TORN = 0.03
"""Share of a function's time up to which a phase is ignored: py-spy reads stacks while they change, and mixes two."""

_NAMELESS = frozenset(("inner", "wrapper", "decorate_context"))
"""Names of wrapper functions, which do not identify the wrapped function."""

_REMEDY = (
    "Record with stacks (the default) for some seconds; `profile-train doctor` reports whether sampling is permitted."
)

_Key = tuple[str, str]
"""File and function."""

_Frame = tuple[str, int, str, str]
"""File, line, function and library."""

_Part = tuple[str, str, str, int | str]
"""Phase, file, function and, for the loop's own work, its line or the library that its lines call; else 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HotPlace:
    """A function of the program's own code that takes time, and its hottest line."""

    phase: str
    file: str
    line: int
    function: str
    """The function's name; for a line in the training loop, the loop's function."""
    whole: bool
    """Whether the time is the whole function's; otherwise it is the line's."""
    share: float
    """Share of the step; for a worker, of the time in which it prepares batches; between steps, of the run."""
    low: float
    """Lower end of the share's 95 % interval, from the number of samples."""
    high: float
    samples: int
    library: str
    """The library or standard module in which most of the time passes.

    It is "" for the program's own lines and the C code that they call.
    """
    called: str
    """The library function that the line calls, if most of the time passes in one; else empty."""
    phases: tuple[tuple[str, float], ...] = ()
    """Share of the step by phase, the largest first; empty if all of it is in `phase`."""
    own: float = 1.0
    """Part of the time in which no other function of the program runs below this one."""
    kind: str = ""
    """Kind of work, if frames and source show it: "loop", "sleep", a library, ...; else empty."""
    outer: str = ""
    """The function that all of the time passes in, if less than INNER of it passes in this one; else empty."""
    inner: float = 1.0
    """Part of the time that passes in this function; below INNER if there is an outer function."""
    near: tuple[int, ...] = ()
    """Other lines of the function that are about as hot."""

    def share_in(self, phase: str) -> float:
        """Return the share of the step that it takes in one phase."""
        return dict(self.phases or ((self.phase, self.share),)).get(phase, 0.0)

    @property
    def name(self) -> str:
        """Return the place's name for a sentence: a function, or a line of the loop."""
        if self.whole and _is_name(self.function):
            return f"{self.outer}(), most of it {self.function}()" if _is_name(self.outer) else f"{self.function}()"
        called = self.called.rpartition(".")[2]
        if called.endswith("_call_impl"):
            return "the model, called"
        return f"{called}(), called" if called.isidentifier() and called not in _NAMELESS else "one line"

    @property
    def where(self) -> str:
        """Return the file's name and the line."""
        return f"a notebook cell, line {self.line}" if is_cell(self.file) else f"{PurePath(self.file).name}:{self.line}"


def _is_name(function: str) -> bool:
    return all(part.isidentifier() for part in function.split("."))


def _own(stack: Stack) -> list[_Frame]:
    return [frame for frame in stack.frames if not frame[3]]


@metric(None)
def sampled(m: Metrics) -> tuple[Stack, ...]:
    """The Python stacks that were sampled from the training process in steady steps.

    If a run has no such steps (an evaluation or a checkpoint in each step), all stacks.
    """
    return known(_in_steps(m[primary_rank]) or None, "No Python stacks were sampled", _REMEDY)


def _in_steps(rank: Rank) -> tuple[Stack, ...]:
    rows = [row for row in rank.stacks if row.role == "rank"]
    step_rows = [row for row in rows if row.phase not in BETWEEN]  # by frames: the two clocks may disagree
    return tuple([row for row in step_rows if row.steady] or step_rows or rows)


@metric("count", "stacks sampled")
def stack_samples(m: Metrics) -> int:
    """Number of Python stacks sampled from the training process in steady steps."""
    return sum(row.samples for row in m[sampled])


@metric(None)
def hot_places(m: Metrics) -> tuple[HotPlace, ...]:
    """The program's own functions and lines that take the largest share of a step, largest first."""
    m[sampled]  # raises Missing without stacks
    places = [_within_its_phases(m, place) for place in places_of(m, m[primary_rank])]
    return tuple(sorted(places, key=lambda place: -place.share))


def _within_its_phases(m: Metrics, place: HotPlace) -> HotPlace:
    """Return the place with its share limited to the share of its phases: samples only estimate what was timed.

    If the whole interval is above that share, stacks and hooks may define the phases differently: the place then stays
    unchanged, unless its phases are single library calls.
    """
    phases = [phase for phase, _ in place.phases or ((place.phase, place.share),)]
    shares = {fraction: m.get(fraction) if fraction else None for fraction in map(MEASURED.get, phases)}
    if None in shares.values():
        return place
    limit = sum(part or 0.0 for part in shares.values())
    if limit >= place.share or (place.low > limit and not TIMED_ALIKE.issuperset(phases)):
        return place
    return replace(place, share=limit, low=min(place.low, limit))


def places_of(m: Metrics, rank: Rank) -> tuple[HotPlace, ...]:
    """Return the places of a rank that take the largest share of its steps, largest first; empty without stacks."""
    rows = _in_steps(rank)
    return _with_kinds(m, _places(rows, sum(row.total for row in rows), _loop(rows)))


@metric(None)
def sampled_phases(m: Metrics) -> dict[str, float]:
    """Share of the sampled time by phase of the step."""
    phases = totals(m[sampled], attrgetter("phase"))
    total = sum(phases.values())
    return {phase: seconds / total for phase, seconds in phases.items()} if total else {}


@metric(None)
def worker_places(m: Metrics) -> tuple[HotPlace, ...]:
    """The program's own functions and lines that take most of the time in which DataLoader workers prepare batches."""
    rows = [row for row in m[primary_rank].stacks if row.role == "worker" and row.phase in ("fetch", "collate")]
    if not rows:
        raise Missing("No Python stacks of loader workers were sampled", _REMEDY)
    return _with_kinds(m, _places(rows, sum(row.total for row in rows), frozenset()))


@metric(None)
def places_between(m: Metrics) -> tuple[HotPlace, ...]:
    """The program's own lines that take most of the run between steady steps: saving, evaluation, starting epochs."""
    rows = [row for row in m[primary_rank].stacks if row.role == "rank"]
    if not rows:
        raise Missing("No Python stacks were sampled", _REMEDY)
    total = sum(row.total for row in rows)
    if (m.get(evaluation_share) or 0.0) >= EVALUATES:
        evaluation_functions = _evaluating(rows, m.profile.started_at)
        rows = [_as_evaluation(row, evaluation_functions) for row in rows]
    return tuple(_places([row for row in rows if not row.steady or row.phase in BETWEEN], total, _loop(rows)))


def _evaluating(rows: Sequence[Stack], since: float) -> frozenset[_Key]:
    """Return the functions that read batches or call the model, never train, and hardly run in steady steps.

    py-spy's clock may be off by more than a short step, so the limit is higher for functions without gradients.
    """
    times: dict[_Key, list[float]] = defaultdict(lambda: [0.0, 0.0])
    lines: dict[_Key, set[int]] = defaultdict(set)
    for row in rows:
        for file, line, function, _ in _above_the_phase(row):
            times[file, function][row.steady] += row.total
            lines[file, function].add(line)

    def most(key: _Key) -> float:
        text = to_parse(key[0], since) or ()
        contexts = (syntax(text, line) for line in lines[key])
        return OWN if any(context and context.no_grad for context in contexts) else LITTLE

    return frozenset(
        key
        for key, phases in _phases(rows).items()
        if phases & {"forward", "data_wait"} and not phases & TRAINS and times[key][True] <= most(key) * sum(times[key])
    )


def _as_evaluation(row: Stack, evaluating: frozenset[_Key]) -> Stack:
    """Return the stack; one in an evaluation is marked as such, without the frames that the evaluation calls."""
    index = next((index for index, frame in enumerate(row.frames) if (frame[0], frame[2]) in evaluating), None)
    return row if index is None else replace(row, phase="evaluation", steady=False, frames=row.frames[: index + 1])


@metric(None)
def hot_place(m: Metrics) -> HotPlace:
    """The place that takes the largest share of a step.

    It must do a known kind of work or lie outside the model and its optimizer. A line of the training loop that waits
    for a torch function, such as the loss, does not count.
    """
    cpu = bool(m.get(on_cpu))
    place = next((place for place in m[hot_places] if is_worth_naming(place, OWN_WORK, on_cpu=cpu)), None)
    return known(place, "No line of the program's own was sampled outside model and optimizer", _REMEDY)


@metric(None)
def hot_place_between(m: Metrics) -> float:
    """Share of the samples in saving, evaluation and epoch starts that are in the hottest place's function."""
    place = m[hot_place]
    rows = [row for row in m[primary_rank].stacks if row.role == "rank" and row.phase in BETWEEN]
    total = sum(row.total for row in rows)
    if not place.whole or not total:
        return 0.0
    return sum(row.total for row in rows if _passes(row, (place.file, place.function))) / total


@metric("1", "share of the step in the hottest place")
def hot_place_share(m: Metrics) -> float:
    """Share of the step in the hottest function or line."""
    return m[hot_place].share


@metric("1", "share of the step in the hottest place, lower bound")
def hot_place_share_low(m: Metrics) -> float:
    """Lower end of the 95 % interval of the hottest place's share; the interval follows from the number of samples."""
    return m[hot_place].low


@metric(None)
def anomaly_place(m: Metrics) -> tuple[str, int]:
    """File and line of the program's own code that turns anomaly detection on, if it was sampled."""
    since = m.profile.started_at
    files = {frame[0] for row in m[sampled] for frame in _own(row)}
    for file in sorted(files):
        for number, line in enumerate(source(file, since) or (), 1):
            code = line.partition("#")[0]
            if "detect_anomaly" in code and "import" not in code and "False" not in code:
                return file, number
    raise Missing("The line that enables anomaly detection was not found", _REMEDY)


OUTSIDE = ("other", "logging", "metric")
"""Phases of stacks that lie outside model, loader and optimizer."""

OWN_WORK = (*OUTSIDE, "data_wait")
"""Phases in which any of the program's own work is worth naming, whatever its kind."""


def is_worth_naming(place: HotPlace, phases: Sequence[str], *, on_cpu: bool) -> bool:
    """Return whether a place is worth naming: its kind is known, or it is the program's own work in these phases."""
    return bool(place.kind) or (place.phase in phases and is_own_work(place, on_cpu=on_cpu))


def is_own_work(place: HotPlace, *, on_cpu: bool) -> bool:
    """Return whether the time is not spent in one torch function that the training needs, such as the loss.

    With a GPU, a line of the loop that calls no Python function may be a copy, in which the host waits for the GPU. A
    line that takes a batch from a loader, or from a library around it, does not count as own work.
    """
    libraries = ("torch", *(() if on_cpu else ("",)))
    return place.whole or (place.phase != "data_wait" and place.library not in libraries)


def _with_kinds(m: Metrics, places: Iterable[HotPlace]) -> tuple[HotPlace, ...]:
    """Return the places with their kinds, by their frames and by the source as it ran."""
    since = m.profile.started_at
    forwards = (m.get(step.forwards_per_step) or 0.0) / max(1.0, m.get(step.micro_steps_per_step) or 1.0)
    evaluates = (m.get(evaluation_share) or 0.0) >= EVALUATES
    results = []
    for place in places:
        text = to_parse(place.file, since) if place.share >= WORTH_READING else None
        context = None
        if text:
            place = _in_a_loop(place, text)
            context = syntax(text, place.line)
        results.append(replace(place, kind=place.kind or kind_of(place, context, forwards, evaluates=evaluates)))
    return tuple(results)


def _in_a_loop(place: HotPlace, text: list[str]) -> HotPlace:
    """Return the place with a line that a loop repeats, if there is one about as hot as its hottest line."""
    for line in (place.line, *place.near):
        context = syntax(text, line)
        if context and context.loop:
            return replace(place, line=line)
    return place


def kind_of(place: HotPlace, around: Syntax | None, forwards: float, *, evaluates: bool = False) -> str:
    """Return a place's kind of work; empty if nothing shows it.

    `forwards` is the number of model calls per backward pass, 0 if unknown; `evaluates` is whether hooks saw the run
    spend time in evaluation.
    """
    around = around or Syntax()
    if place.phase in ("backward", "optimizer", "checkpoint_save", "evaluation"):
        return ""
    if place.own >= OWN and (call_kind := next((kind for name, kind in CALLS.items() if name in around.calls), "")):
        return call_kind
    if place.library in KNOWN:
        return KNOWN[place.library] or place.library
    if "open" in around.calls and not place.library:
        return "file"
    if not place.whole:
        return ""
    if evaluates and around.no_grad and place.share_in("forward"):
        return "evaluation"
    if forwards >= MANY_FORWARDS and around.loop and place.share_in("forward"):
        return "one_row" if around.one_row else "evaluation" if around.no_grad else ""
    if around.generator and place.phase == "other":
        return "generator"
    list_calls = around.calls & LISTS and not around.statement_loop
    if list_calls and place.own >= OWN and place.phase in (*OUTSIDE, "data_wait"):
        return "lists"
    if around.recurrent and place.phase == "forward":
        return ""
    # A loop over modules is the model, and so is a line that only calls other functions of the program.
    limit = LITTLE if place.phase in OUTSIDE else OWN
    if around.loop and place.own >= limit and not place.called.endswith("_call_impl"):
        return "parameters" if around.parameters else "loop"
    return "values" if place.phase in OUTSIDE and around.calls & VALUES else ""


def _loop(rows: Iterable[Stack]) -> frozenset[_Key]:
    """Return the functions that contain more than one phase of the step or call the backward pass, and `<module>`."""
    functions = _phases(rows).items()
    return frozenset(
        key for key, phases in functions if len(phases & LOOPS) > 1 or "backward" in phases or key[1] == "<module>"
    )


def _phases(rows: Iterable[Stack]) -> dict[_Key, set[str]]:
    """Return the phases that each of the program's functions contains."""
    times: dict[_Key, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for row in rows:
        for file, _, function, _ in _above_the_phase(row):
            times[file, function][row.phase] += row.total
    return {
        key: {phase for phase, seconds in phase_times.items() if seconds > TORN * sum(phase_times.values())}
        for key, phase_times in times.items()
    }


def _above_the_phase(row: Stack) -> list[_Frame]:
    """Return the program's frames before the first frame of the library that makes the phase.

    If a framework drives the loop, the program's frames above and below the framework's frames are returned.
    torch.no_grad() as a decorator does not make a phase.
    """
    frames: list[_Frame] = []
    for frame in row.frames:
        if frame[3] in ("torch", "safetensors") and frames and not frame[2].endswith("decorate_context"):
            break
        if not frame[3]:
            frames.append(frame)
    return frames


def _places(rows: Sequence[Stack], total: float, loop: frozenset[_Key]) -> list[HotPlace]:
    """Return where the time of these stacks passes, each sample counted once, the hottest place first."""
    parts: dict[_Part, list[Stack]] = defaultdict(list)
    for row in rows:
        frames = _own(row)
        if not frames:
            continue
        callee = next((frame for frame in frames if (frame[0], frame[2]) not in loop and frame[2] != "<module>"), None)
        if callee is not None:  # in any phase: a metric calls the model and also computes
            parts["", callee[0], callee[2], 0].append(row)
        else:
            file, line, function, _ = frames[-1]
            library, _ = _calls(row)
            # Lines of the loop that call the same known library, such as a plotting library, are one place.
            parts[("", file, function, library) if library in KNOWN else (row.phase, file, function, line)].append(row)
    _add_calling_lines(parts, loop)
    if not total:
        return []
    count = sum(row.samples for row in rows)
    places = [_place(key, stacks, total, count) for key, stacks in parts.items()]
    places.sort(key=lambda place: -place.share)
    counts: dict[str, int] = defaultdict(int)
    top_places = []
    for place in places:
        counts[place.phase] += 1
        if counts[place.phase] <= MOST_PLACES:
            top_places.append(place)
    return top_places


def _add_calling_lines(parts: dict[_Part, list[Stack]], loop: frozenset[_Key]) -> None:
    """Add the short time of a loop's line to the function that it calls.

    That line frees the function's locals and results.
    """
    callers: dict[_Frame, dict[_Part, float]] = defaultdict(lambda: defaultdict(float))
    for key, rows in parts.items():
        if key[3] == 0:
            for row in rows:
                loop_frames = [frame for frame in _own(row) if (frame[0], frame[2]) in loop or frame[2] == "<module>"]
                if loop_frames and row.phase in OUTSIDE:
                    callers[loop_frames[-1]][key] += row.total
    for key in list(parts):
        phase, file, function, line = key
        if (
            phase not in OUTSIDE
            or not isinstance(line, int)
            or not (callees := callers.get((file, line, function, "")))
        ):
            continue
        callee = max(callees, key=lambda part: callees[part])
        own_rows = [row for row in parts[key] if _calls(row) == ("", "")]
        if sum(row.total for row in own_rows) <= LITTLE * callees[callee]:
            parts[callee] += own_rows
            parts[key] = [row for row in parts[key] if _calls(row) != ("", "")]
            if not parts[key]:
                del parts[key]


def _place(key: _Part, rows: list[Stack], total: float, count: int) -> HotPlace:
    _, file, function, line = key
    outer, inner, near = "", 1.0, list[int]()
    seconds = sum(row.total for row in rows)
    phases = totals(rows, attrgetter("phase"))
    by_phase = tuple(sorted(((name, part / total) for name, part in phases.items()), key=lambda item: -item[1]))
    if not line:
        outer = function
        file, function = _innermost(rows, (file, function), seconds)
        inner = sum(row.total for row in rows if _passes(row, (file, function))) / seconds
        if inner >= INNER:
            outer = ""
    if not line or isinstance(line, str):
        line, *near = _hottest_lines(rows, file, function)
    share = seconds / total
    low, high = interval(share, count)
    library, called = _passes_in(rows, seconds)
    if not library and sum(row.total for row in rows if _calls(row) == ("", "")) < seconds / 2:
        # Several libraries share the time: use the one that the hottest line calls.
        hottest_rows = [row for row in rows if _own(row)[-1][:3] == (file, line, function)]
        library, called = _passes_in(hottest_rows, sum(row.total for row in hottest_rows)) if hottest_rows else ("", "")
    return HotPlace(
        phase=by_phase[0][0],
        file=file,
        line=line,
        function=function,
        whole=not key[3],
        share=share,
        low=low,
        high=high,
        samples=sum(row.samples for row in rows),
        library=library,
        called=called,
        phases=by_phase,
        own=_own_part(rows, (file, function)),
        kind="sampler" if not key[3] and sum(row.total for row in rows if _samples(row)) > seconds / 2 else "",
        outer=outer,
        inner=inner,
        near=tuple(near),
    )


def _samples(row: Stack) -> bool:
    """Return whether a loader draws the indices of its next batch."""
    names = ((file, function.rpartition(".")[2]) for file, _, function, library in row.frames if library == "torch")
    return any(file == "torch/utils/data/sampler.py" or name == "_next_index" for file, name in names)


def _passes(row: Stack, key: _Key) -> bool:
    """Return whether a sample lies in a function or in what it calls."""
    return any((file, function) == key for file, _, function, library in row.frames if not library)


def _own_part(rows: list[Stack], key: _Key) -> float:
    """Return the part of a function's time in which no other function of the program runs below it."""
    function_rows = [row for row in rows if _passes(row, key)]
    total = sum(row.total for row in function_rows)
    return sum(row.total for row in function_rows if _own(row)[-1][::2] == key) / total if total else 1.0


def _innermost(rows: list[Stack], outer: _Key, seconds: float) -> _Key:
    """Return the function in which most of this time passes, going down from the outer one."""
    current = outer
    visited = {current}
    while True:
        callees: dict[_Key, float] = defaultdict(float)
        for row in rows:
            keys = [(frame[0], frame[2]) for frame in _own(row)]
            if current in keys:
                rest = keys[len(keys) - keys[::-1].index(current) :]
                if rest:
                    callees[rest[0]] += row.total
        callee = max(callees, key=lambda key: callees[key], default=None)
        if callee is None or callee in visited or callees[callee] < MOSTLY * seconds:
            return current
        current = callee
        visited.add(current)


def _hottest_lines(rows: list[Stack], file: str, function: str) -> list[int]:
    """Return the function's hottest line, then those that are about as hot."""
    own_times: dict[int, float] = defaultdict(float)
    lines: dict[int, float] = defaultdict(float)
    for row in rows:
        frames = _own(row)
        innermost = next((frame for frame in reversed(frames) if (frame[0], frame[2]) == (file, function)), None)
        if innermost is not None:
            lines[innermost[1]] += row.total
            if innermost is frames[-1]:
                own_times[innermost[1]] += row.total
    if sum(own_times.values()) >= LITTLE * sum(lines.values()):
        lines = own_times
    ordered = sorted(lines, key=lambda line: -lines[line])
    return [line for line in ordered if lines[line] >= NEAR * lines[ordered[0]]] or [0]


def _passes_in(rows: list[Stack], seconds: float) -> tuple[str, str]:
    """Return the library that the program's last line calls for most of this time, and its function."""
    libraries = totals(rows, _calls)
    (library, function), function_seconds = max(libraries.items(), key=lambda item: item[1])
    library_seconds = sum(value for (name, _), value in libraries.items() if name == library)
    return (library, function if function_seconds > seconds / 2 else "") if library_seconds > seconds / 2 else ("", "")


def _calls(row: Stack) -> tuple[str, str]:
    """Return the library that the program's last line of a sample calls, and its function; empty if there is none.

    For the standard library, it is the module.
    """
    callees = row.frames[row.frames.index(_own(row)[-1]) + 1 :]
    if not callees:
        return "", ""
    file, _, function, library = callees[0]
    return (file.partition("/")[0].removesuffix(".py") if library == "python" else library), function


def interval(share: float, count: float, z: float = Z) -> tuple[float, float]:
    """Return the interval of a share measured in `count` samples: the 95 % interval, unless `z` differs.

    Source: Wilson (1927), Probable inference, the law of succession, and statistical inference.
    """
    if count <= 0:
        return 0.0, 1.0
    middle = share + z * z / (2 * count)
    margin = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) if 0 <= share <= 1 else 0.0
    whole = 1 + z * z / count
    return max(0.0, (middle - margin) / whole), min(1.0, (middle + margin) / whole)
