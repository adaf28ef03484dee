"""The samples end to end: each is run plainly, under profile-train, and cured; the report must tell which is which."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent
PROFILE_TRAIN = [sys.executable, "-c", "from advisor.cli import main; raise SystemExit(main())"]

# What is wrong with each sample, as the rule that must come first; None: nothing that shows on this device.
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


@dataclass(frozen=True)
class Recorded:
    exit_status: int
    stdout: bytes
    stderr: bytes
    result: dict

    @property
    def advice(self) -> list[str]:
        """Rules above info, in the order of the plan."""
        return [advice["rule"] for advice in self.result["advice"] if advice["severity"] != "info"]


def run(command: list[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, timeout=300)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Recorded]:
    @cache
    def record(sample: str, *arguments: str) -> Recorded:
        out = tmp_path_factory.mktemp(sample) / "run"
        done = run([*PROFILE_TRAIN, "--out", str(out), f"samples/{sample}.py", *arguments])
        assert (out / "result.json").exists(), done.stderr.decode()
        return Recorded(done.returncode, done.stdout, done.stderr, json.loads((out / "result.json").read_text()))

    return record


def told(run: Recorded) -> str:
    """For a failed assertion: what the report made of the run."""
    keys = ("steps", "phases", "advice", "verdicts")
    return json.dumps({key: run.result[key] for key in keys}, indent=1)


def assert_first(run: Recorded, rule: str | None) -> None:
    """The rule leads the advice. A machine that is busy with other things can make a run too noisy to act upon: the
    report then says that before all else and holds the rest back to info, but leaves its order."""
    if rule is None:
        assert run.advice == [], told(run)
        return
    every = [advice["rule"] for advice in run.result["advice"]]
    noisy = "window-too-short" in every
    found = [name for name in every if name != "window-too-short"] if noisy else run.advice
    assert next(iter(found), None) == rule, told(run)


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what a machine without a GPU shows")
@pytest.mark.parametrize("sample", ON_CPU)
def test_on_a_cpu_the_first_advice_is_what_is_wrong(sample: str, recorded: Callable[..., Recorded]) -> None:
    assert_first(recorded(sample), ON_CPU[sample])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("sample", ON_GPU)
def test_on_a_gpu_the_first_advice_is_what_is_wrong(sample: str, recorded: Callable[..., Recorded]) -> None:
    assert_first(recorded(sample), ON_GPU[sample])


@pytest.mark.parametrize("sample", [sample for sample, rule in ON_GPU.items() if rule])
def test_the_cure_silences_the_advice(sample: str, recorded: Callable[..., Recorded]) -> None:
    run = recorded(sample, "--fixed")
    assert ON_GPU[sample] not in run.advice, told(run)


def test_a_healthy_run_gets_no_advice_above_info(recorded: Callable[..., Recorded]) -> None:
    run = recorded("healthy")
    assert run.advice == [], told(run)


@pytest.mark.parametrize("sample", ON_CPU)
def test_output_and_exit_status_are_those_of_the_plain_run(sample: str, recorded: Callable[..., Recorded]) -> None:
    plain = run([sys.executable, f"samples/{sample}.py"])
    profiled = recorded(sample)
    assert profiled.stdout == plain.stdout
    assert profiled.exit_status == plain.returncode == 0


@pytest.mark.parametrize("sample", ON_CPU)
def test_every_step_of_a_sample_is_counted(sample: str, recorded: Callable[..., Recorded]) -> None:
    """The last line of the log names the last step: all of them were seen, and their phases make up the step."""
    run = recorded(sample)
    last = int(run.stdout.splitlines()[-1].split()[1])
    assert run.result["steps"]["count"] == last
    between = {"evaluation", "checkpoint_save"}
    shares = [share for phase, share in run.result["phases"].items() if share is not None and phase not in between]
    assert sum(shares) == pytest.approx(1, abs=0.02)
