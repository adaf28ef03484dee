"""A run whose advice is tried right after it: the command's exit status is the program's, whatever the trials do."""

import json

import pytest
from programs import COMMAND, PATIENCE, ROOT, TORCH, Ran, codes

from advisor.judging.calibration_file import read as read_calibration

# Each sample of a batch takes 5 ms in the training process.
STARVED = (
    TORCH
    + """
import sys, time, torch
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self): return 8 * 70
    def __getitem__(self, index):
        time.sleep(0.005)
        return torch.full((64,), index / 560)

if __name__ == "__main__":
    torch.set_num_threads(1)
    model = torch.nn.Linear(64, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for batch in DataLoader(Slow(), batch_size=8):
        loss = (model(batch) + 1).square().mean()
        time.sleep(0.01)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    sys.exit(int(sys.argv[1]))
"""
)


@pytest.fixture
def verified(script, start, tmp_path):
    """Run the program with --verify; it ends with this status."""

    def run(status, *options, stdin=b""):
        path = script(STARVED, "project/train.py")
        words = ("--out", "run", "--verify", "--no-windows", *options, path.name, status)
        environment = {"PYTHONPATH": str(ROOT), "PROFILE_TRAIN_CALIBRATION": str(tmp_path / "calibration.jsonl")}
        running = start(*COMMAND, *words, cwd=path.parent, env=environment, stdin=stdin)
        running.process.wait(5 * PATIENCE)
        return running.finish(), path.parent / "run"

    return run


@pytest.mark.slow
def test_verify_tries_advised_change(verified, tmp_path):
    ran, folder = verified(0, "--yes", "--repeats", 2)

    assert ran.status == 0
    assert b"train.py 0" in ran.err
    (advice,) = (
        each
        for each in json.loads((folder / "result.json").read_text())["advice"]
        if each["rule"] == "data-workers-zero"
    )
    kept = json.loads((tmp_path / "calibration.jsonl").read_text())
    assert kept["verdict"] == advice["verified"]["verdict"]
    assert advice["past"] == read_calibration(tmp_path / "calibration.jsonl")[0].story("data-workers-zero") != ""


def test_declining_trials_prints_command_to_continue(verified, tmp_path):
    ran, folder = verified(0, stdin=b"n\n")

    assert ran.status == 0
    assert b"[y/N]" in ran.err
    assert b"continue with: profile-train verify run" in ran.err
    assert (folder / "report.html").exists()
    assert not (tmp_path / "calibration.jsonl").exists()


def test_no_trials_after_program_failure(verified):
    ran, folder = verified(3, "--yes")

    assert ran.status == 3
    assert b"nothing was tried, because the program failed." in ran.err
    assert (folder / "report.html").exists()
    assert not (folder / "trials").exists()


def test_verify_without_report_is_usage_error(verified):
    ran, folder = verified(0, "--no-report")

    assert ran.status == 2
    assert not folder.exists()


TUNED = """
[[change]]
name = "loader"
[change.settings]
file = "FILE"
line = LINE
num_workers = 2

[[change]]
name = "environment"
[change.settings]
variables = { "CUDA_LAUNCH_BLOCKING" = "yes" }
"""


def with_tuned(script, start, line):
    """Run the program to its end, with the changes that a tuning has kept."""
    path = script(STARVED.replace("sys.exit(", "import os; print(os.environ['CUDA_LAUNCH_BLOCKING']); sys.exit("))
    path.with_name("tuned.toml").write_text(TUNED.replace("FILE", str(path)).replace("LINE", str(line)))
    words = ("--out", "run", "--apply", "tuned.toml", "--no-windows", path.name, 5)
    ran = start(*COMMAND, *words, cwd=path.parent, env={"PYTHONPATH": str(ROOT)}).finish()
    assert ran.status == 5
    assert b"yes" in ran.out
    assert b"applied from tuned.toml: loader" in ran.err
    return json.loads((path.parent / "run/result.json").read_text())


def line_of_loader():
    return next(number for number, line in enumerate(STARVED.splitlines(), 1) if "DataLoader(Slow" in line)


def test_tuned_change_is_applied_until_program_ends(script, start):
    result = with_tuned(script, start, line_of_loader())

    assert result["steps"]["count"] == 70
    assert [each["source"] for each in result["environment"]["problems"] if each["source"] == "trial"] == []
    # The loader now has workers, so the rule has nothing to judge.
    assert "data-workers-zero" not in [each["rule"] for each in result["advice"]]


def test_change_that_could_not_be_applied_is_reported(script, start, tmp_path):
    result = with_tuned(script, start, 1)

    assert result["steps"]["count"] == 70
    (problem,) = (each for each in result["environment"]["problems"] if each["source"] == "trial")
    ran = Ran(0, b"", b"", tmp_path / "run")
    assert codes(ran, "trial") == ["no-target"]
    assert ran.problems["trial"] == [problem["message"]]
