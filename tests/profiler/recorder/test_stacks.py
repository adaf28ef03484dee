"""py-spy's samples as stacks by phase, from recorded output; the sampler itself on a real program."""

import gzip
import json
import os
import signal
from collections import Counter
from pathlib import Path

import psutil
import pytest
from programs import TORCH, alive, wait_until

from profiler.agent import yama
from profiler.recorder.stacks import sampler
from profiler.recorder.stacks.frames import MOST_FRAMES, OURS, phase, read, shortened, worker_phase
from profiler.recorder.stacks.sampler import StackSampler, _Sample
from profiler.schema import Step

RECORDED = Path(__file__).parent / "stacks"
PACKAGES = "/venv/lib/python3.11/site-packages"
TRAIN = ("/home/me/train.py", 9, "main")
CALL = (f"{PACKAGES}/torch/nn/modules/module.py", 1776, "Module._call_impl")
NEXT = (f"{PACKAGES}/torch/utils/data/dataloader.py", 700, "_BaseDataLoaderIter.__next__")
BAR = (f"{PACKAGES}/tqdm/std.py", 1186, "tqdm.__iter__")
BACKWARD = (f"{PACKAGES}/torch/_tensor.py", 623, "Tensor.backward")
UPDATE = (f"{PACKAGES}/torch/optim/optimizer.py", 520, "Optimizer.profile_hook_step.<locals>.wrapper")
FETCH = (f"{PACKAGES}/torch/utils/data/_utils/fetch.py", 54, "_MapDatasetFetcher.fetch")
LOOP = (f"{PACKAGES}/torch/utils/data/_utils/worker.py", 334, "_worker_loop")
COLLATE = (f"{PACKAGES}/torch/utils/data/_utils/collate.py", 398, "default_collate")
GET = ("/usr/lib/python3.11/multiprocessing/queues.py", 113, "Queue.get")


def recorded(name, pid, *, worker):
    return list(read(gzip.decompress((RECORDED / name).read_bytes()).decode(), pid, worker=worker))


def test_stacks_of_a_recorded_training_process():
    spans = recorded("rank.json.gz", 1000, worker=False)
    assert {"forward", "backward"} <= {span.phase for span in spans}
    assert all(span.end > span.start for span in spans)
    assert {frame[3] for span in spans for frame in span.frames} <= {"", "python", "torch"}
    assert {frame[:1] for span in spans for frame in span.frames if not frame[3]} == {("/home/me/t.py",)}


def test_stacks_of_a_recorded_worker():
    spans = recorded("worker.json.gz", 2000, worker=True)
    assert {span.phase for span in spans} <= {"fetch", "collate", "idle", "other"}
    own = {frame[2] for span in spans if span.phase == "fetch" for frame in span.frames if not frame[3]}
    assert own == {"D.__getitem__"}, "the frames of the process that forked it are not its own"


@pytest.mark.parametrize("shown", ["{}", "<{} (importlib, _bootstrap)>"])
@pytest.mark.parametrize(("line", "is_programs"), [("batch = plain(", True), ("cpu = time.thread_time_ns()", False)])
def test_samples_in_hooks_are_dropped_unless_they_call_the_program(line, is_programs, shown):
    hook = Path(OURS) / "agent/hooks/dataloader.py"
    number = next(at for at, text in enumerate(hook.read_text().splitlines(), 1) if line in text)
    stack = [TRAIN, NEXT, (shown.format(hook), number, "_Fetches._hook.<locals>.fetch")]
    events = [
        {"tid": 1, "ph": kind, "ts": at, "name": name, "args": {"filename": file, "line": number}}
        for kind, at, frames in (("B", 0, [("x", 0, "thread (7): MainThread"), *stack]), ("E", 50_000, stack[::-1]))
        for file, number, name in frames
    ]

    assert [span.phase for span in read(json.dumps(events), 7, worker=False)] == ["data_wait"] * is_programs


def test_steps_older_than_any_pending_sample_are_dropped(tmp_path):
    stacks = StackSampler(tmp_path, lambda: 50.0, lambda source, message: None)
    for number in range(1000):
        stacks.note(Step(pid=7, index=number, start=0.1 * number, duration=0.1))
    stacks.rows()

    assert len(stacks._steps[7].starts) == len(stacks._steps[7].ends) == pytest.approx(500, abs=1)


def test_stalled_rank_does_not_keep_steps_of_another_rank(tmp_path):
    stacks = StackSampler(tmp_path, lambda: 200.0, lambda source, message: None)
    stacks._waiting = [_Sample(1.0, 0.1, 8, "rank", "other", (("t.py", 1, "main", ""),))]
    for number in range(1000):
        stacks.note(Step(pid=7, index=number, start=0.1 * number, duration=0.1))
    stacks.rows()

    assert len(stacks._steps[7].ends) == 0
    assert [row.samples for row in stacks.rows(final=True)] == [1]


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        ([TRAIN], "other"),
        ([TRAIN, NEXT, FETCH, ("/home/me/data.py", 3, "__getitem__")], "data_wait"),
        ([TRAIN, CALL, ("/home/me/model.py", 3, "forward")], "forward"),
        ([TRAIN, BAR, NEXT, FETCH], "data_wait"),
        ([TRAIN, BAR, (f"{PACKAGES}/tqdm/std.py", 1346, "tqdm.refresh")], "logging"),
        ([TRAIN, BACKWARD, CALL], "backward"),
        ([TRAIN, UPDATE], "optimizer"),
        ([TRAIN, UPDATE, ("/home/me/train.py", 3, "closure"), CALL], "forward"),
        ([TRAIN, (f"{PACKAGES}/torch/optim/optimizer.py", 900, "Optimizer.zero_grad")], "other"),
        ([TRAIN, (f"{PACKAGES}/torch/optim/lr_scheduler.py", 90, "LRScheduler.step")], "other"),
        ([TRAIN, (f"{PACKAGES}/torch/serialization.py", 900, "save")], "checkpoint_save"),
        ([TRAIN, ("/usr/lib/python3.11/logging/__init__.py", 90, "Logger.info")], "logging"),
        ([TRAIN, ("/home/me/logging/__init__.py", 90, "Logger.info")], "other"),
        ([TRAIN, (f"{PACKAGES}/sklearn/metrics/_ranking.py", 90, "roc_auc_score")], "metric"),
    ],
)
def test_stack_is_assigned_to_a_phase(stack, expected):
    assert phase(stack) == expected


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        ([LOOP, GET], "idle"),
        ([LOOP, FETCH, ("/home/me/data.py", 3, "__getitem__")], "fetch"),
        ([LOOP, FETCH, COLLATE], "collate"),
        ([LOOP, FETCH, ("/home/me/data.py", 3, "my_collate")], "collate"),
        ([LOOP], "other"),
        ([GET], "other"),
    ],
)
def test_worker_stack_is_assigned_to_a_phase(stack, expected):
    assert worker_phase(stack) == expected


def test_first_and_last_frame_of_a_library_are_kept():
    inner = (f"{PACKAGES}/torch/nn/modules/linear.py", 134, "Linear.forward")
    comprehension = ("/home/me/train.py", 9, "main.<locals>.<listcomp>")
    stack = [TRAIN, comprehension, (f"{OURS}/agent/hooks/forward.py", 1, "call"), CALL, CALL, CALL, inner]
    assert [(frame[0], frame[2]) for frame in shortened(stack)] == [
        ("/home/me/train.py", "main"),
        ("torch/nn/modules/module.py", "Module._call_impl"),
        ("torch/nn/modules/linear.py", "Linear.forward"),
    ]
    assert [frame[2] for frame in shortened([TRAIN, BAR, NEXT])] == ["main", NEXT[2]]
    key = ("/home/me/train.py", 12, "main.<locals>.<lambda>")
    sort = ("/home/me/train.py", 12, "<lambda>")
    assert [frame[2] for frame in shortened([TRAIN, key])] == ["main"]
    assert [frame[2] for frame in shortened([TRAIN, sort])] == ["main"]
    assert [frame[2] for frame in shortened([NEXT, sort])][-1] == "<lambda>", "a library calls it"
    assert [frame[2] for frame in shortened([("/home/me/train.py", 9, "<module>"), sort])][-1] == "<lambda>"
    assert len(shortened([("/home/me/train.py", line, f"f{line}") for line in range(900)])) == MOST_FRAMES


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[{"tid": 1}]', "[" * 100_000])
def test_damaged_output_is_not_a_trace(text):
    with pytest.raises((ValueError, KeyError, TypeError, RecursionError)):
        list(read(text, 1, worker=False))


def test_samples_count_for_the_step_they_lie_in(tmp_path):
    taken = StackSampler(tmp_path, lambda: 0.0, lambda source, message: None)
    frames = (("/home/me/train.py", 9, "main", ""),)
    taken._waiting = [_Sample(moment, 0.1, 7, "rank", "other", frames) for moment in (0.5, 1.5, 2.5, 3.5)]
    taken.note(Step(pid=7, index=0, start=1.0, duration=1.0))
    taken.note(Step(pid=7, index=1, start=2.0, duration=1.0, tags=4))
    taken.note(Step(pid=8, index=0, start=3.0, duration=1.0))
    assert {(row.steady, row.samples) for row in taken.rows()} == {(True, 1), (False, 2)}
    assert {(row.steady, row.samples) for row in taken.rows(final=True)} == {(False, 3)}


def test_too_many_stacks_are_counted_without_frames(tmp_path, monkeypatch):
    monkeypatch.setattr(sampler, "MOST_STACKS", 2)
    taken = StackSampler(tmp_path, lambda: 0.0, lambda source, message: None)
    taken._waiting = [_Sample(0.0, 0.1, 7, "rank", "other", (("t.py", line, "main", ""),)) for line in range(5)]
    rows = taken.rows(final=True)
    assert Counter(row.frames != () for row in rows) == {True: 2, False: 1}
    assert sum(row.samples for row in rows) == 5


def test_ranks_are_sampled_in_turn_with_the_first_every_other_time(tmp_path, monkeypatch):
    taken = StackSampler(tmp_path, lambda: 0.0, lambda source, message: None)
    begun = []
    monkeypatch.setattr(sampler, "_exists", lambda pid: pid != 9)

    def begin(pid, role):
        begun.append(pid)
        taken._stretches[role] += 1

    monkeypatch.setattr(taken, "_begin", begin)
    for _ in range(6):
        taken.poll([5, 6, 7, 9], lambda pid: [])
    assert begun == [5, 6, 5, 7, 5, 6]


def test_missing_py_spy_is_reported_once(tmp_path, monkeypatch):
    monkeypatch.setattr(sampler, "executable", lambda: None)
    problems = []
    taken = StackSampler(tmp_path, lambda: 0.0, lambda source, message: problems.append((source, message)))
    for _ in range(3):
        taken.poll([os.getpid()], lambda pid: [])
    assert [source for source, _ in problems] == ["stacks"]


@pytest.mark.parametrize(("scope", "calls"), [("1\n", 1), ("0\n", 0), ("2\n", 0), (None, 0)])
def test_recorder_is_allowed_as_tracer_only_where_yama_requires_it(tmp_path, monkeypatch, scope, calls):
    import ctypes

    asked = []

    class Library:
        @staticmethod
        def prctl(*arguments):
            asked.append(arguments)

    monkeypatch.setattr(yama, "SCOPE", str(tmp_path / "scope"))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library)
    if scope is not None:
        (tmp_path / "scope").write_text(scope)
    yama.allow(42)
    assert asked == [(0x59616D61, 42, 0, 0, 0)] * calls


SLOW = (
    TORCH
    + """
import os, sys, time, torch
torch.set_num_threads(1)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def normalize():
    end = time.monotonic() + 0.05
    while time.monotonic() < end: sum(range(100))
print(os.getpid(), flush=True)
for step in range(int(sys.argv[1])):
    normalize()
    model(torch.randn(2, 4)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
)
SAMPLED = {sampler.OFF: "1"}


@pytest.mark.process
def test_a_program_is_sampled(script, start_profiled):
    ran = start_profiled(script(SLOW), "50", env=SAMPLED).finish()
    assert ran.status == 0
    steady = [row for row in ran.tables.stacks if row.steady]
    assert max(steady, key=lambda row: row.total).frames[-1][2] == "normalize"
    assert {row.pid for row in steady} == {ran.ranks[0].pid}


@pytest.mark.process
def test_the_sampler_can_be_switched_off(script, start_profiled):
    options = ("--no-report", "--no-windows", "--no-stacks")
    ran = start_profiled(script(SLOW), "12", env=SAMPLED, options=options).finish()
    assert ran.steps
    assert not ran.tables.stacks


@pytest.mark.process
def test_no_sampler_outlives_a_killed_recorder(script, start_profiled):
    running = start_profiled(script(SLOW), "400", env=SAMPLED)
    program = int(running.wait_for("\n"))
    recorder = psutil.Process(program).parent()

    def samplers():
        return [child for child in recorder.children(recursive=True) if child.name() == "py-spy"]

    wait_until(samplers, "the first stretch")
    (child,) = samplers()
    recorder.send_signal(signal.SIGKILL)
    wait_until(lambda: not alive(child.pid), "the end of py-spy")
    os.kill(program, signal.SIGKILL)


def test_py_spy_failure_reason_is_its_error_line_not_backtrace():
    output = "Error: No python processes found\nStack backtrace:\n   0: <E as anyhow::StdError>::ext_context\n"

    assert "No python processes found" in sampler._reason(output)
