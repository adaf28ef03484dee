"""The table of kernels: sums over windows, by step, most time first."""

import pytest

from advisor.report.operations import SHOWN, operations
from advisor.runs.profile import Profile, Rank
from profiler.schema import Kernel, Process, Window


def window(steps, device="cuda"):
    return Window(pid=1, start=0.0, steps=steps, duration=1.0, cost=0.1, device=device)


def kernel(name, calls, total, device="cuda", number=0):
    return Kernel(pid=1, window=number, device=device, name=name, kind="matmul", calls=calls, total=total)


def a_run(windows, kernels):
    return Profile(
        runs=(), ranks=(Rank(process=Process(pid=1, started=0.0), windows=tuple(windows), kernels=tuple(kernels)),)
    )


def test_times_and_calls_are_those_of_a_mean_step():
    run = a_run(
        [window(1), window(3)],
        [kernel("gemm", 2, 0.2), kernel("gemm", 6, 0.6, number=1), kernel("add", 4, 0.2, number=1)],
    )

    seen = operations(run)

    assert (seen.device, seen.steps, seen.count) == ("cuda", 4, 2)
    assert seen.seconds == pytest.approx(0.25)
    first, second = seen.shown
    assert (first.name, first.calls, first.seconds, first.share) == ("gemm", 2, pytest.approx(0.2), pytest.approx(0.8))
    assert (second.name, second.seconds) == ("add", pytest.approx(0.05))


def test_host_operators_are_omitted_on_gpu():
    run = a_run([window(1), window(1, "cpu")], [kernel("aten::mm", 9, 9.0, "cpu"), kernel("gemm", 1, 0.1)])

    assert [one.name for one in operations(run).shown] == ["gemm"]


def test_on_a_cpu_operators_are_shown():
    run = a_run([window(2, "cpu")], [kernel("aten::mm", 4, 1.0, "cpu")])

    seen = operations(run)

    assert seen.device == "cpu"
    assert seen.shown[0].seconds == pytest.approx(0.5)


def test_only_most_expensive_are_shown_but_all_are_counted():
    run = a_run([window(1)], [kernel(f"k{number}", 1, float(number + 1)) for number in range(SHOWN + 5)])

    seen = operations(run)

    assert len(seen.shown) == SHOWN
    assert seen.count == SHOWN + 5
    assert seen.seconds == pytest.approx(sum(range(1, SHOWN + 6)))
    assert seen.shown[0].name == f"k{SHOWN + 4}"


def test_without_windows_there_is_nothing_to_show():
    assert operations(a_run([], [])) is None
    assert operations(Profile(runs=())) is None
