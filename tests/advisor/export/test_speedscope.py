import json

import pytest
from profiles import metrics, rank

from advisor.export import speedscope
from profiler.errors import ProfilerError
from profiler.schema import Stack

FRAMES = (("t.py", 5, "main", ""), ("torch/a.py", 2, "tanh", "torch"))


def exported(path, *stacks):
    speedscope.write((), metrics(rank(stacks=stacks)), path / "stacks.json")
    return json.loads((path / "stacks.json").read_text())


def test_each_phase_is_a_profile_of_shared_frames(tmp_path):
    forward = Stack(pid=1, id=0, phase="forward", frames=FRAMES, total=2.0, samples=20)
    other = Stack(pid=1, id=1, phase="other", frames=FRAMES[:1], total=3.0, samples=30)
    made = exported(tmp_path, forward, other)
    assert [(one["name"], one["endValue"]) for one in made["profiles"]] == [
        ("rank 0 rank: other", 3.0),
        ("rank 0 rank: forward", 2.0),
    ]
    assert [one["samples"] for one in made["profiles"]] == [[[0]], [[0, 1]]]
    assert [one["name"] for one in made["shared"]["frames"]] == ["main", "tanh"]


def test_a_run_without_stacks_says_how_to_get_them(tmp_path):
    with pytest.raises(ProfilerError, match="stacks"):
        exported(tmp_path)
