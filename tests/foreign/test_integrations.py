"""The snippets of docs/integrations.md, unchanged, and how the callbacks handle runs that go wrong."""

import json
import re
import sys

import pytest
from programs import PATIENCE, ROOT, Ran

ENV = {
    "PYTHONPATH": str(ROOT),
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "WANDB_MODE": "offline",
    "MLFLOW_TRACKING_URI": "file:mlruns",
    "MLFLOW_ALLOW_FILE_STORE": "true",
}


def snippets(heading):
    """Return the Python blocks of a section, one after the other."""
    text = (ROOT / "docs" / "integrations.md").read_text()
    (section,) = [part for part in text.split("\n## ") if part.startswith(f"{heading}\n")]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


@pytest.fixture
def run(script, start, tmp_path):
    """Run a program that records into the folder `run`."""

    def run(program, *launcher, env=None):
        words = launcher or (sys.executable,)
        return start(*words, script(program), folder=tmp_path / "run", env=ENV | (env or {})).finish()

    return run


def read(ran):
    return json.loads((ran.folder / "result.json").read_text())


def check(ran, steps):
    assert ran.status == 0, ran.err.decode()
    found = read(ran)
    assert (found["run"]["ended"], found["steps"]["count"]) == ("completed", steps)
    assert ran.err.count(b"report.html") == 1
    assert ran.problems.keys() <= {"nvml"}
    return found


def events(folder):
    """Return TensorBoard's data: the last value of each scalar, and the texts."""
    from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer

    multiplexer = EventMultiplexer().AddRunsFromDirectory(str(folder)).Reload()
    values, texts = {}, {}
    for name, tags in multiplexer.Runs().items():
        for tag in tags["scalars"]:
            last = multiplexer.Scalars(name, tag)[-1]
            values[tag] = last.step, last.value
        for tag in tags["tensors"]:
            (text,) = multiplexer.Tensors(name, tag)[-1].tensor_proto.string_val
            texts[tag.removesuffix("/text_summary")] = text.decode()
    return values, texts


def check_events(folder, found, step):
    values, texts = events(folder)
    logged = {
        name: value
        for name, (at, value) in values.items()
        if name.startswith("profile_train/") and not name.startswith("profile_train/live/")
    }
    assert {values[name][0] for name in logged} == {step}
    assert logged.pop("profile_train/steps") == found["steps"]["count"]
    assert logged.pop("profile_train/step_time_s") == pytest.approx(found["steps"]["time_s"]["mean"])
    assert logged.pop("profile_train/step_time_p90_s") == pytest.approx(found["steps"]["time_s"]["p90"])
    measured = {name: share for name, share in found["phases"].items() if share is not None}
    assert logged == pytest.approx({f"profile_train/phase/{name}": share for name, share in measured.items()})
    assert sum(logged.values()) == pytest.approx(1, abs=0.05)
    return texts


@pytest.mark.foreign("lightning", "tensorboard")
def test_lightning_snippet(run, tmp_path):
    (program,) = snippets("Lightning")
    ran = run(program)

    found = check(ran, 128)
    texts = check_events(tmp_path / "lightning_logs", found, 128)
    assert texts["profile_train/advice"]
    (optimizer,) = ran.facts("optimizer")
    assert optimizer.place.line == 1 + program.splitlines().index("        return torch.optim.AdamW(self.parameters())")


@pytest.mark.foreign("transformers", "accelerate", "tensorboard")
def test_transformers_trainer_snippet(run, tmp_path):
    ran = run(*snippets("Hugging Face Trainer"))

    found = check(ran, 64)
    assert check_events(tmp_path / "out" / "runs", found, 64)["profile_train/advice"]


@pytest.mark.foreign("accelerate", "tensorboard")
def test_accelerate_snippet(run, tmp_path):
    ran = run(*snippets("Hugging Face accelerate"))

    found = check(ran, 128)
    assert check_events(tmp_path / "logs", found, 0)["profile_train/advice"]


@pytest.mark.foreign("tensorboard", "wandb", "mlflow")
def test_tracker_snippets(run, tmp_path):
    ran = run("".join(snippets("TensorBoard, wandb, mlflow")))

    found = check(ran, 200)
    advice = check_events(tmp_path / "logs", found, 200)["profile_train/advice"]
    share = found["phases"]["forward"]
    assert re.search(
        rb"profile_train/phase/forward +%d?\.%s" % (int(share), str(share).split(".")[1][:3].encode()), ran.err
    )
    (kept,) = (tmp_path / "mlruns").rglob("metrics/profile_train/phase/forward")
    assert [float(kept.read_text().split()[1]), kept.read_text().split()[2]] == [pytest.approx(share), "200"]
    (tag,) = (tmp_path / "mlruns").rglob("tags/profile_train/advice")
    assert tag.read_text() == advice


COUNTED = """
from torch.utils.tensorboard import SummaryWriter
points, add_scalar = [], SummaryWriter.add_scalar
def counted(self, name, value, global_step=None, **how):
    add_scalar(self, name, value, global_step, **how)
    if name == "profile_train/live/step_time_s": points.append(global_step)
SummaryWriter.add_scalar = counted
"""
"""Code in front of a program that trains until there are three points."""

LIVE = "profile_train/live/"


def check_live(folder, last):
    """Check the curves: points of more and more steps, each a partition of its step."""
    from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer

    multiplexer = EventMultiplexer().AddRunsFromDirectory(str(folder)).Reload()
    curves = {
        tag.removeprefix(LIVE): {event.step: event.value for event in multiplexer.Scalars(name, tag)}
        for name, tags in multiplexer.Runs().items()
        for tag in tags["scalars"]
        if tag.startswith(LIVE)
    }
    at = list(curves["step_time_s"])
    assert len(at) >= 3
    assert at == sorted(at)
    assert at[-1] <= last
    assert sum(curves["steps"].values()) <= last
    assert all(value > 0 for value in curves["step_time_s"].values())
    for step in at:
        shares = [curve[step] for name, curve in curves.items() if name.startswith("phase/") and step in curve]
        assert sum(shares) == pytest.approx(1, abs=0.05)
    return at


@pytest.mark.foreign("lightning", "tensorboard")
def test_lightning_callback_logs_live_values(run, tmp_path):
    (program,) = snippets("Lightning")
    stops = """
    class Enough(lightning.Callback):
        def on_train_batch_end(self, trainer, *_): trainer.should_stop = len(points) >= 3
    trainer = lightning.Trainer(max_epochs=-1, callbacks=[ProfileTrainCallback(out="run", every=20), Enough()])
"""
    begin = '    trainer = lightning.Trainer(max_epochs=1, callbacks=[ProfileTrainCallback(out="run")])\n'
    assert begin in program
    ran = run(COUNTED + program.replace(begin, stops))

    assert ran.status == 0, ran.err.decode()
    check_live(tmp_path / "lightning_logs", len(ran.steps))
    assert b"Live values have stopped" not in ran.err


@pytest.mark.foreign("transformers", "accelerate", "tensorboard", "wandb", "mlflow")
def test_transformers_callback_logs_live_values_to_three_trackers(run, tmp_path):
    """Its three trackers get the same points."""
    (program,) = snippets("Hugging Face Trainer")
    stops = """
    from transformers import TrainerCallback
    from wandb.sdk.wandb_run import Run
    sent, log = [], Run.log
    def logged(self, values, *more, **how):
        log(self, values, *more, **how)
        if "profile_train/live/step_time_s" in values: sent.append(values["train/global_step"])
    Run.log = logged
    class Enough(TrainerCallback):
        def on_step_end(self, args, state, control, **_): control.should_training_stop = len(points) >= 3
    trainer.add_callback(Enough())
    trainer.train()
    assert sent == points, (sent, points)
"""
    endless = program.replace("num_train_epochs=2", "max_steps=10**6, disable_tqdm=True")
    for old, new in (
        ('["tensorboard"]', '["tensorboard", "wandb", "mlflow"]'),
        ('(out="run")', '(out="run", every=20)'),
        ("    trainer.train()\n", stops),
    ):
        assert old in endless
        endless = endless.replace(old, new)
    ran = run(COUNTED + endless)

    assert ran.status == 0, ran.err.decode()
    at = check_live(tmp_path / "out" / "runs", len(ran.steps))
    (kept,) = (tmp_path / "mlruns").rglob("metrics/profile_train/live/step_time_s")
    assert [int(line.split()[2]) for line in kept.read_text().splitlines()] == at
    assert b"Live values have stopped" not in ran.err


@pytest.mark.foreign("accelerate", "tensorboard")
def test_accelerate_integration_logs_live_values(run, tmp_path):
    (program,) = snippets("Hugging Face accelerate")
    loop = "    for step, (inputs, targets) in enumerate(loader):\n"
    endless = """
    def forever():
        while len(points) < 3: yield from loader
    for step, (inputs, targets) in enumerate(forever()):
"""
    assert loop in program
    ran = run(COUNTED + program.replace(loop, endless).replace('(out="run")', '(out="run", every=20)'))

    assert ran.status == 0, ran.err.decode()
    check_live(tmp_path / "logs", len(ran.steps))


def notebook(*cells):
    """Run cells in a kernel of their own; return their outputs."""
    import nbformat
    from nbclient import NotebookClient

    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(book, timeout=round(PATIENCE), kernel_name="python3", allow_errors=True).execute()
    return [cell.outputs for cell in book.cells]


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """Make kernels start in `tmp_path`, on this interpreter, and import this checkout."""
    for name, value in ENV.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "jupyter" / "kernels" / "python3"
    folder.mkdir(parents=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (folder / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "Python", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    return notebook


def shown(outputs):
    """Return the HTML that a cell shows."""
    return [output.data["text/html"] for output in outputs if "text/html" in output.get("data", {})]


@pytest.mark.filterwarnings("default")
@pytest.mark.foreign("nbclient", "ipykernel")
def test_notebook_snippets(kernel, tmp_path):
    loaded, trained, again, named = kernel(*snippets("Notebooks"))

    assert loaded == []
    check_run = Ran(0, b"", b"", tmp_path / "run")
    assert read(check_run)["steps"]["count"] == 128
    (frame,) = shown(trained)
    assert shown(again) == shown(named) == [frame]
    assert frame.startswith("<iframe ")
    assert "Content-Security-Policy" in frame
    assert "<script" not in frame  # all of it is inside the attribute
    assert 'sandbox="allow-scripts allow-popups"' in frame


@pytest.mark.filterwarnings("default")
@pytest.mark.foreign("nbclient", "ipykernel")
def test_failing_notebook_cell_raises_its_own_error(kernel, tmp_path):
    train = snippets("Notebooks")[1]
    _, early, failed, last = kernel(
        "%load_ext profiler", "%profile_train_report", f"{train}\nraise ValueError('diverged')", f"{train}\n6 * 7"
    )

    (mistake,) = early
    assert mistake.text.startswith("UsageError: ")
    assert "%%profile_train" in mistake.text
    assert (failed[-1].output_type, failed[-1].ename) == ("error", "ValueError")
    assert [output.data["text/plain"] for output in last if output.output_type == "execute_result"] == ["42"]


LIGHTNING = """
import lightning, torch
from torch.utils.data import DataLoader, TensorDataset
from profiler.integrations.lightning import ProfileTrainCallback

class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(16, 1)
    def training_step(self, batch, index):
        if index == 20: raise ValueError("diverged")
        return self.net(batch[0]).square().mean()
    def configure_optimizers(self): return torch.optim.AdamW(self.parameters())

callback = ProfileTrainCallback(out="run")
trainer = lightning.Trainer(max_epochs=1, logger=False, callbacks=[callback])
try:
    trainer.fit(Regression(), DataLoader(TensorDataset(torch.randn(2048, 16)), 16))
except ValueError as error:
    print(error, callback.run.result()["run"]["ended"])
"""


@pytest.mark.foreign("lightning")
def test_failing_lightning_fit_is_recorded_as_failed(run):
    ran = run(LIGHTNING)

    assert (ran.status, ran.out.decode().splitlines()[-1]) == (0, "diverged failed")
    assert len(ran.steps) == 20


@pytest.mark.foreign("transformers", "accelerate", "tensorboard")
def test_failing_trainer_is_reported_at_program_exit(run):
    (program,) = snippets("Hugging Face Trainer")
    raises = """
    from transformers import TrainerCallback
    class Raises(TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            if state.global_step == 20: raise ValueError("diverged")
    trainer.add_callback(Raises())
    trainer.train()
"""
    ran = run(program.replace("    trainer.train()\n", raises))

    assert ran.status == 1
    assert (read(ran)["run"]["ended"], len(ran.steps)) == ("failed", 20)
    assert b"report.html" in ran.err


@pytest.mark.parametrize(
    ("heading", "steps", "logs"),
    [
        pytest.param("Lightning", 128, "lightning_logs", marks=pytest.mark.foreign("lightning", "tensorboard")),
        pytest.param(
            "Hugging Face Trainer",
            64,
            "out/runs",
            marks=pytest.mark.foreign("transformers", "accelerate", "tensorboard"),
        ),
        pytest.param("Hugging Face accelerate", 128, "logs", marks=pytest.mark.foreign("accelerate", "tensorboard")),
    ],
)
def test_callbacks_under_profile_train_log_without_a_second_recording(
    script, start_profiled, tmp_path, heading, steps, logs
):
    (program,) = snippets(heading)
    ran = start_profiled(script(program), env=ENV).finish()

    assert ran.status == 0, ran.err.decode()
    assert len(ran.steps) == steps
    assert not (tmp_path / "run").exists()
    values, texts = events(tmp_path / logs)
    assert 0 < values["profile_train/phase/forward"][1] < 1
    assert texts["profile_train/advice"]
