"""Programs that use other frameworks, run plain and under profile-train at the same time."""

import json
import re
import sys
from dataclasses import dataclass
from importlib.util import find_spec

import pytest
from programs import NUMPY_TORCH, Ran

from profiler.schema import PHASES

REPORTED = "reported: "
"""Prefix of a program's lines that must be the same in both runs; what a framework prints contains times."""

BEGIN = f"""
import json, sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
torch.set_num_threads(1)
torch.manual_seed(0)

class Rows(TensorDataset):
    # With collate_fn=tuple a batch is one indexing: nothing waits for it, however busy the machine is.
    def __getitems__(self, indices): return self[indices]

def tell(*values):
    # In one write: ranks share the terminal.
    sys.stdout.write({REPORTED!r} + json.dumps(values) + "\\n")
    sys.stdout.flush()

def total(model):
    return sum(parameter.double().abs().sum().item() for parameter in model.parameters())
"""


def pytest_runtest_setup(item):
    marker = item.get_closest_marker("foreign")
    for package in marker.args if marker else ():
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")


@dataclass(frozen=True)
class Judged:
    """A recording, and the report on it."""

    ran: Ran
    result: dict
    """result.json."""

    def of(self, rank):
        """Return the steps of a rank, by RANK."""
        return [step for step in self.ran.steps if step.pid == self._pid(rank)]

    def flags(self, rank=0):
        """Return the last FlagsFact of a rank; its workers have theirs."""
        return [fact.body for fact in self.ran.tables.facts if (fact.kind, fact.pid) == ("flags", self._pid(rank))][-1]

    def _pid(self, rank):
        (process,) = [process for process in self.ran.ranks if process.rank == rank]
        return process.pid

    @property
    def training(self):
        """Return the facts of the loaders that were trained on."""
        return [fact for fact in self.ran.facts("loader") if fact.training]

    @property
    def advised(self):
        """Return the advice above information, with its evidence."""
        return {advice["rule"]: advice["evidence"] for advice in self.result["advice"] if advice["severity"] != "info"}


@pytest.fixture
def judge(script, start, start_profiled, report, tmp_path):
    """Run a program plain and, at the same time, under profile-train; it must print the same. Return the recording,
    after the checks that hold for every healthy program whose steps are seen. `light` is for programs that use torch
    only, and little of it; `advised` are rules that may fire."""

    def run(
        program, *arguments, launcher=(sys.executable,), env=None, seen=True, stderr=False, light=False, advised=()
    ):
        path = script(f"{NUMPY_TORCH if light else ''}\n{BEGIN}{program}")
        env = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1", **(env or {})}
        runs = []
        for name, begin in (("plain", start), ("profiled", start_profiled)):
            folder = tmp_path / name
            folder.mkdir(exist_ok=True)
            how = {"options": ("--no-report",)} if name == "profiled" else {}
            runs.append(begin(*launcher, path, *arguments, cwd=folder, env=env, **how))
        plain, profiled = (each.finish() for each in runs)
        assert plain.status == 0, plain.err.decode()
        assert (profiled.status, own_lines(profiled)) == (0, own_lines(plain)), profiled.err.decode()
        assert own_lines(plain)
        if stderr:
            assert undated(plain.err) == undated(profiled.err)
        reported = report(profiled.folder)
        assert reported.status == 0, reported.err.decode()
        found = Judged(profiled, json.loads((profiled.folder / "result.json").read_text()))
        if seen:
            check(found, advised)
        return found

    return run


def own_lines(ran):
    """Return the lines that must be the same; for several ranks, in any order."""
    return sorted(line for line in ran.out.decode().splitlines() if line.startswith(REPORTED))


def undated(lines):
    """Return torch's log lines without times and PIDs."""
    return re.sub(rb"^W\d+ \S+ \d+", b"W", lines, flags=re.MULTILINE)


def check(found, advised):
    """Check that steps are partitioned into their phases, nothing went wrong, and nothing is advised."""
    assert set(found.ran.problems) <= {"nvml"}
    for step in found.ran.steps:
        parts = [getattr(step, phase) for phase in PHASES]
        assert sum(part for part in parts if part is not None) == pytest.approx(step.duration, rel=0.02, abs=1e-6)
    shares = [share for name, share in found.result["phases"].items() if share is not None and name in PHASES]
    assert sum(shares) == pytest.approx(1, abs=0.02)
    assert sum(found.result["phases"][name] or 0 for name in ("forward", "backward", "optimizer")) > 0
    assert not [verdict for verdict in found.result["verdicts"] if verdict["outcome"] == "crashed"]
    assert found.result["overhead"]["events_lost"] == 0
    assert found.advised.keys() <= set(advised)
