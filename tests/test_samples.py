"""The samples end to end: each is run plainly, under profile-train, and cured; the report must show which is which."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from programs import NUMPY_TORCH, PATIENCE

ROOT = Path(__file__).resolve().parent.parent
PROFILE_TRAIN = [sys.executable, "-c", "from advisor.cli import main; raise SystemExit(main())"]

# The rule that must come first for each sample; None: nothing that shows on this device.
ON_CPU = {
    "anomaly_detection": "debug-apis-on",
    "fp32_transformer": None,
    "healthy": None,
    "input_starved": "data-workers-zero",
    "logging_every_step": "host-logging",
    "many_small_parameters": "optimizer-fused",
    "small_batches": None,
}
ON_GPU = {**ON_CPU, "fp32_transformer": "precision-bf16", "small_batches": "batch-raise"}

STEPS = 50
"""Steps: enough for each of these findings, even on a busy machine."""


@dataclass(frozen=True)
class Recorded:
    exit_status: int
    stdout: bytes
    stderr: bytes
    result: dict

    @property
    def advice(self) -> list[str]:
        """Return the rules above info, in the order of the plan."""
        return [advice["rule"] for advice in self.result["advice"] if advice["severity"] != "info"]


def run(command: list[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE)


def light(sample: str, folder: Path) -> str:
    """Write a copy of a sample that imports torch in less time, line for line; `healthy` stays as users start it."""
    path = ROOT / f"samples/{sample}.py"
    if sample == "healthy":
        return str(path)
    before, after = path.read_text().split("\nimport torch\n")
    heavy, torch = NUMPY_TORCH.splitlines()
    (folder / path.name).write_text(f"{before}\n{heavy}; {torch}; import torch\n{after}")
    return str(folder / path.name)


def record(out: Path, *command: str) -> Recorded:
    done = run([*PROFILE_TRAIN, "--out", str(out), *command])
    assert (out / "result.json").exists(), done.stderr.decode()
    return Recorded(done.returncode, done.stdout, done.stderr, json.loads((out / "result.json").read_text()))


def summary(run: Recorded) -> str:
    """Return what the report says about the run, for a failed assertion."""
    keys = ("steps", "phases", "advice", "verdicts")
    return json.dumps({key: run.result[key] for key in keys}, indent=1)


def assert_first(run: Recorded, rule: str | None) -> None:
    """Check that the rule leads the advice. Other load on the machine can make a run too noisy to act upon: the report
    then says that before all else and holds the rest back to info, but leaves its order."""
    if rule is None:
        assert run.advice == [], summary(run)
        return
    every = [advice["rule"] for advice in run.result["advice"]]
    noisy = "window-too-short" in every
    found = [name for name in every if name != "window-too-short"] if noisy else run.advice
    assert next(iter(found), None) == rule, summary(run)


@pytest.mark.parametrize("sample", ON_CPU)
@pytest.mark.process
def test_sample(sample: str, tmp_path: Path, subtests: pytest.Subtests) -> None:
    steps = "--steps", str(STEPS)
    program = light(sample, tmp_path)
    plain = run([sys.executable, program, *steps])
    profiled = record(tmp_path / "run", program, *steps)

    with subtests.test("output and exit status are the same as in the plain run"):
        assert profiled.stdout == plain.stdout
        assert profiled.exit_status == plain.returncode == 0
    rule = (ON_GPU if torch.cuda.is_available() else ON_CPU)[sample]
    with subtests.test("the first advice names the sample's problem"):
        assert_first(profiled, rule)
    with subtests.test("every step is counted, and its phases add up to it"):
        assert profiled.result["steps"]["count"] == STEPS
        between = {"evaluation", "checkpoint_save"}
        shares = [
            share for name, share in profiled.result["phases"].items() if share is not None and name not in between
        ]
        assert sum(shares) == pytest.approx(1, abs=0.02)
    if rule:
        with subtests.test("the fix removes the advice"):
            fixed = record(tmp_path / "fixed", program, "--fixed", *steps)
            assert rule not in fixed.advice, summary(fixed)
