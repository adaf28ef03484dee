import os
import subprocess
import sys
import time

import psutil
import pytest

from profiler.recorder import host as host_module
from profiler.recorder.cgroup import Cgroup
from profiler.recorder.host import HostSampler, machine

BURN = "import time; end = time.process_time() + {seconds}\nwhile time.process_time() < end: pass\n"
SAY_AND_WAIT = "print(flush=True); input()\n"


class Program:
    """A Python process that runs to its next pause; `go` resumes it until the following one."""

    def __init__(self, source):
        self.process = subprocess.Popen(
            [sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self.process.pid
        self.heard = self.process.stdout.readline()

    def go(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.heard = self.process.stdout.readline()

    def end(self):
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def start():
    programs = []

    def start_(source):
        programs.append(Program(source))
        return programs[-1]

    yield start_
    for program in programs:
        for child in psutil.Process(program.pid).children(recursive=True) if program.process.poll() is None else []:
            child.kill()
        program.end()


def spent(sampler, program, workers=()):
    """Return the CPU seconds of the process tree and of the workers while the program runs to its next pause."""
    sampler.sample(0.0, workers)
    at = time.monotonic()
    program.go()
    row = sampler.sample(1.0, workers)
    elapsed = time.monotonic() - at
    return row.cpu * elapsed, row.cpu_workers * elapsed


def test_the_first_sample_has_no_rates(start):
    row = HostSampler(start(SAY_AND_WAIT).pid).sample(2.5, ())

    assert row.time == 2.5
    assert (row.cpu, row.cpu_workers, row.read, row.write, row.machine_cpu, row.steal) == (None,) * 6
    assert row.processes == 1
    assert row.rss > 1_000_000
    assert 0 < row.memory_available <= psutil.virtual_memory().total


def test_cpu_time_of_the_program_is_counted(start):
    program = start(SAY_AND_WAIT + BURN.format(seconds=0.3) + SAY_AND_WAIT)
    sampler = HostSampler(program.pid)

    cpu, workers = spent(sampler, program)

    assert cpu >= 0.28  # the kernel counts in ticks of 10 ms
    assert workers == 0.0


def test_an_idle_program_uses_less_than_a_busy_one(start):
    idle, busy = start(SAY_AND_WAIT * 2), start(SAY_AND_WAIT + BURN.format(seconds=0.2) + SAY_AND_WAIT)

    assert spent(HostSampler(idle.pid), idle)[0] < spent(HostSampler(busy.pid), busy)[0]


def test_machine_cpu_is_measured_while_the_program_works(start):
    program = start(SAY_AND_WAIT + BURN.format(seconds=0.3) + SAY_AND_WAIT)
    sampler = HostSampler(program.pid)
    sampler.sample(0.0, ())
    program.go()

    row = sampler.sample(1.0, ())

    assert 0 < row.machine_cpu <= 2 * os.cpu_count()
    assert row.steal is None or row.steal >= 0


def parent_of(child):
    """Return the source of a program that starts another; when that pauses, it prints that one's PID and output, and
    pauses."""
    return (
        f"import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}],"
        f" stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)\n"
        f"print(child.pid, child.stdout.readline(), end='', flush=True); input()\n"
    )


def test_cpu_time_of_workers_is_counted_separately(start):
    child = SAY_AND_WAIT + BURN.format(seconds=0.3) + SAY_AND_WAIT
    go_on = "child.stdin.write(chr(10)); child.stdin.flush(); child.stdout.readline()\n"
    program = start(parent_of(child) + go_on + SAY_AND_WAIT)
    worker = int(program.heard)
    sampler = HostSampler(program.pid)
    assert sampler.pids == {program.pid, worker}

    cpu, workers = spent(sampler, program, workers=[worker])

    assert workers >= 0.28
    assert cpu >= workers


SHORT_LIVED = "import subprocess, sys; subprocess.run([sys.executable, '-c', {source!r}], check=True)\n"


def test_short_lived_process_between_samples_is_counted(start):
    program = start(SAY_AND_WAIT + SHORT_LIVED.format(source=BURN.format(seconds=0.3)) + SAY_AND_WAIT)

    cpu, _ = spent(HostSampler(program.pid), program)

    assert cpu >= 0.28


def test_cpu_time_is_not_counted_again_when_a_process_ends(start):
    child = BURN.format(seconds=0.4) + SAY_AND_WAIT
    program = start(parent_of(child) + "child.communicate(chr(10))\n" + SAY_AND_WAIT)
    sampler = HostSampler(program.pid)
    assert sampler.sample(0.0, ()).processes == 2

    cpu, _ = spent(sampler, program)

    assert sampler.pids == {program.pid}
    assert cpu < 0.3


def test_a_process_whose_parent_has_ended_stays_in_the_tree(start):
    child = (
        "import subprocess, sys\n"
        "sleep = [sys.executable, '-c', 'import time; time.sleep(60)']\n"
        "grandchild = subprocess.Popen(sleep, stdout=subprocess.DEVNULL)\n"
        "print(grandchild.pid, flush=True); input()\n"
    )
    program = start(parent_of(child) + "child.communicate(chr(10))\n" + SAY_AND_WAIT)
    orphan = int(program.heard.split()[1])
    sampler = HostSampler(program.pid)
    try:
        assert sampler.sample(0.0, ()).processes == 3
        program.go()
        assert sampler.sample(1.0, ()).processes == 2
        assert sampler.pids == {program.pid, orphan}
    finally:
        psutil.Process(orphan).kill()


def test_the_recorder_is_not_part_of_the_program(start):
    program = start(SAY_AND_WAIT)
    sampler = HostSampler(os.getpid())

    assert program.pid in HostSampler(program.pid).pids
    assert os.getppid() not in sampler.pids
    assert os.getpid() not in HostSampler(os.getppid()).pids
    assert program.pid not in HostSampler(os.getppid()).pids


def test_ended_program_leaves_only_machine_values(start):
    program = start(SAY_AND_WAIT)
    sampler = HostSampler(program.pid)
    sampler.sample(0.0, ())
    program.end()
    time.sleep(0.02)

    row = sampler.sample(1.0, ())

    assert (row.cpu, row.cpu_workers, row.rss, row.processes, row.read) == (None, None, None, 0, None)
    assert row.machine_cpu >= 0
    assert sampler.pids == frozenset()
    assert HostSampler(program.pid).sample(0.0, ()).processes == 0


def test_zombie_is_not_counted_as_a_process(start):
    until_it_is_one = "while psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE: time.sleep(0.01)\n"
    let_it_end = "child.stdin.close()\nimport psutil, time\n" + until_it_is_one
    program = start(parent_of("print(flush=True); open(0).read()") + let_it_end + SAY_AND_WAIT)
    sampler = HostSampler(program.pid)
    assert sampler.sample(0.0, ()).processes == 2
    program.go()

    assert sampler.sample(1.0, ()).processes == 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts I/O by process")
def test_io_is_none_if_access_is_denied(start, monkeypatch):
    sampler = HostSampler(start(SAY_AND_WAIT).pid)
    sampler.sample(0.0, ())
    time.sleep(0.02)
    assert sampler.sample(1.0, ()).read >= 0

    def denied(process):
        raise psutil.AccessDenied(process.pid)

    monkeypatch.setattr(psutil.Process, "io_counters", denied)
    time.sleep(0.02)
    row = sampler.sample(2.0, ())

    assert (row.read, row.write) == (None, None)
    assert row.cpu is not None


def test_the_machine_is_described():
    here = machine()

    assert 0 < here.cores <= here.cores_total
    assert 0 < here.memory_total <= psutil.virtual_memory().total
    assert here.platform


def test_cgroup_quota_below_affinity_limits_cores_and_memory(monkeypatch):
    class Half(Cgroup):
        def cpu_quota(self):
            return 0.5

        def memory_limit(self):
            return 1000

    monkeypatch.setattr(host_module, "Cgroup", Half)

    assert machine().cores == 0.5
    assert machine().memory_total == 1000


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_affinity_limits_the_cores():
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert machine().cores <= 1
    finally:
        os.sched_setaffinity(0, allowed)
