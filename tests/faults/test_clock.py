"""The system clock changes during training."""

import os
import subprocess

import pytest

from profiler.recorder.folder import started

# A system clock that is set forward and back by four days, ten times a second. Monotonic clocks are not changed.
JUMPS = """
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *out)
{
    struct timespec now;
    int failed = syscall(SYS_clock_gettime, clock, out);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
        out->tv_sec += now.tv_nsec / 100000000 % 2 ? 172800 : -172800;
    }
    return failed;
}

time_t time(time_t *out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}
"""

SEES = """
seen = []
model.register_forward_pre_hook(lambda *_: seen.append(time.time()))
train(40, 0.02)
print(86_400 < max(seen) - min(seen))
"""


@pytest.mark.fault(
    "The system clock jumps forward and back by days during training",
    "unchanged",
    "everything; all times come from a monotonic clock",
    "nothing",
)
def test_system_clock_jumps_do_not_change_durations(training, run_both, check_report, tmp_path):
    source, library = tmp_path / "jumps.c", tmp_path / "jumps.so"
    source.write_text(JUMPS)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    plain, profiled = run_both(training(SEES), env={"LD_PRELOAD": str(library)})

    assert plain.out.endswith(b"\nTrue\n")
    assert (profiled.status, profiled.out, profiled.err) == (plain.status, plain.out, plain.err)
    assert check_report(profiled)["ended"] == "completed"
    run, steps = profiled.run, profiled.steps
    assert len(steps) == 40
    assert 1.0 < run.duration < 600.0
    assert [step.start for step in steps] == sorted(step.start for step in steps)
    assert all(0 < step.start < step.start + step.duration < run.duration for step in steps)
    assert sum(step.duration for step in steps) < run.duration
    samples = [sample.time for sample in profiled.tables.host_samples]
    assert samples == sorted(samples)
    assert 0 <= samples[0] <= samples[-1] <= run.duration


def test_process_start_time_does_not_depend_on_the_system_clock(monkeypatch):
    before = started(os.getpid())
    monkeypatch.setattr("psutil._pslinux.boot_time", lambda: 0.0)  # boot_time moves with the clock

    assert started(os.getpid()) == before
