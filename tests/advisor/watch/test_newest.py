"""What is shown about the newest steps during a run."""

import io
import json
import os
import socket
import sys

import pytest

from advisor.watch import newest
from advisor.watch.newest import newest_steps
from profiler.schema import TAG_COMPILE, TAG_FIRST, Fact, Gpu, GpuSample, Process, Run, Step
from profiler.store import Writer

PID = os.getpid()


def a_run(host=None):
    host = host or socket.gethostname()
    return Run(
        id=host,
        command=("train.py",),
        cwd="/",
        host=host,
        started_at=1.7e9,
        cores=2.0,
        cores_total=2,
        memory_total=2**30,
        platform="Linux",
        python="3.11",
        version="0.1.0",
    )


def steps(first, number, *, pid=PID, forward=0.025, tags=0):
    """Return steps of 0.1 s each."""
    return [
        Step(
            pid=pid,
            index=i,
            start=i / 10,
            duration=0.1,
            forward=forward,
            backward=0.05,
            other=0.05 - forward,
            tags=tags,
        )
        for i in range(first, first + number)
    ]


@pytest.fixture
def writer(tmp_path):
    writer = Writer(tmp_path, socket.gethostname())
    writer.add(a_run())
    writer.add(Process(pid=PID, started=0.0))
    writer.add(Process(pid=PID + 1, started=0.0))
    yield writer
    writer.close()


def test_each_reading_covers_steps_since_previous_one(writer, tmp_path):
    reading = newest_steps(tmp_path, PID)
    writer.add(*steps(0, 1, tags=TAG_FIRST) + steps(1, 49))
    writer.add(*steps(0, 500, pid=PID + 1))
    writer.commit()

    first = next(reading)
    again = next(reading)
    writer.add(*steps(50, 10, forward=0.05))
    writer.commit()
    then = next(reading)

    assert first["steps"] == {"count": 50, "time_s": {"mean": pytest.approx(0.1), "p90": pytest.approx(0.1)}}
    assert first["phases"] == pytest.approx({"forward": 0.25, "backward": 0.5, "other": 0.25})
    assert again == {}
    assert then["steps"]["count"] == 10
    assert then["phases"] == pytest.approx({"forward": 0.5, "backward": 0.5, "other": 0.0})


def test_atypical_steps_are_counted_but_not_timed(writer, tmp_path):
    compiled = [
        Step(pid=PID, index=50, start=5.0, duration=9.0, forward=9.0, tags=TAG_COMPILE),
        *steps(140, 20),
    ]
    writer.add(*compiled)
    writer.commit()

    shown = next(newest_steps(tmp_path, PID))

    assert shown["steps"] == {"count": 21, "time_s": {"mean": pytest.approx(0.1), "p90": pytest.approx(0.1)}}


def test_utilization_is_of_programs_gpus_in_that_period(writer, tmp_path):
    for index in (0, 1):
        writer.add(Gpu(index=index, uuid=str(index), name="H100", memory_total=2**36))
    reading = newest_steps(tmp_path, PID)
    writer.add(*steps(0, 50))
    writer.add(GpuSample(time=1.0, gpu=0, utilization=0.5, process_memory=2**30))
    writer.commit()
    next(reading)
    writer.add(*steps(50, 50))
    for time, own in ((6.0, 0.8), (7.0, 1.0)):
        writer.add(GpuSample(time=time, gpu=0, utilization=own, process_memory=2**30))
        writer.add(GpuSample(time=time, gpu=1, utilization=0.0, process_memory=0))
    writer.commit()

    assert next(reading)["metrics"] == {"gpu_utilization": {"value": pytest.approx(0.9)}}


def test_gpu_of_others_is_not_reported_for_cpu_program(writer, tmp_path):
    writer.add(Fact(pid=PID, time=0.0, kind="model", body={"id": 1, "name": "Net", "devices": {"cpu": 10}}))
    writer.add(*steps(0, 50))
    writer.add(GpuSample(time=1.0, gpu=0, utilization=0.5, process_memory=0))
    writer.commit()

    assert next(newest_steps(tmp_path, PID))["metrics"] == {"gpu_utilization": {"value": None}}


def test_other_node_with_same_pid_is_ignored(tmp_path):
    other = Writer(tmp_path, "another")
    other.add(a_run("another"))
    other.add(Process(pid=PID, started=0.0))
    other.add(*steps(0, 50))
    other.close()

    assert next(newest_steps(tmp_path, PID)) == {}


def test_folder_without_recording_gives_empty_reading(tmp_path):
    assert next(newest_steps(tmp_path, PID)) == {}


def test_only_end_of_long_run_is_read(writer, tmp_path, monkeypatch):
    monkeypatch.setattr(newest, "ROWS", 20)
    writer.add(*steps(0, 100))
    writer.commit()

    assert next(newest_steps(tmp_path, PID))["steps"]["count"] == 20


def test_each_input_line_gives_one_output_line(writer, tmp_path, monkeypatch, capsys):
    writer.add(*steps(0, 50))
    writer.commit()
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n\n"))

    newest.main([str(tmp_path), str(PID)])

    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["steps"]["count"] == 50
    assert 0 < first["cost_s"] < 60
    assert second.keys() == {"cost_s"}
