"""Tasks of a real Slurm: srun starts two, each under a profile-train of its own, on one machine."""

import json
import shutil
import subprocess

import pytest
from programs import COMMAND

from advisor.runs.load import load


def has_a_cluster():
    if shutil.which("srun") is None:
        return False
    done = subprocess.run(["sinfo", "--noheader", "--format=%t"], capture_output=True, text=True)
    return bool({"idle", "mix", "alloc"} & set(done.stdout.split()))


pytestmark = [pytest.mark.foreign, pytest.mark.skipif(not has_a_cluster(), reason="needs a Slurm cluster")]

SRUN = "srun", "--nodes=1", "--ntasks=2"


def test_tasks_are_ranks_of_one_run_that_is_named_after_the_job(training, start, tmp_path):
    program = training("train()\nprint('job', os.environ['SLURM_JOB_ID'])")
    ran = start(*SRUN, *COMMAND, "--no-report", "--no-windows", program).finish()

    assert ran.status == 0, ran.err.decode()
    (folder,) = (tmp_path / "profile-train-runs").iterdir()
    job = ran.out.decode().split("job ")[1].split()[0]
    assert folder.name == f"slurm-{job}-0-train"
    assert [(rank.process.rank, len(rank.steps)) for rank in load(folder).ranks] == [(0, 12), (1, 12)]


def test_report_is_finished_although_srun_terminates_the_other_tasks(training, start, tmp_path):
    """Both fail at once: one makes the report; the other ends, and so makes srun send SIGTERM to the first."""
    program = training("train(); sys.exit(3)")
    ran = start(*SRUN, "--kill-on-bad-exit=1", *COMMAND, "--no-windows", "--out", "run", program).finish()

    assert ran.status == 3, ran.err.decode()
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (result["run"]["ranks"], result["run"]["exit_status"]) == (2, 3)
    assert (tmp_path / "run" / "report.html").exists()
