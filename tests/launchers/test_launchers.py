"""Prefix any command: output and exit status are the same, and the process that trained is recorded."""

import os
import subprocess
import sys

import pytest
from programs import ROOT, TORCH

STEPS = 4
TRAIN = (
    TORCH
    + f"""
import os, sys
import torch
torch.manual_seed(0)
torch.set_num_threads(1)

def train(rank=0):
    layer = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range({STEPS}):
        loss = layer(torch.ones(2, 4)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    sys.stdout.write("%s %s\\n" % (rank, loss.item().hex()))  # in one piece: another process writes, too
    sys.stdout.flush()

"""
)
HERE = (
    f"import os, sys\nif 'TRAINED' not in os.environ: exec({TRAIN + 'train()'!r})\n"
    "print(__name__, sys.argv, sys.path[0], sys.flags)\nsys.exit(3)\n"
)
TRAINED = {"TRAINED": "1"}
"""Environment of plain runs: `trained` is what their training prints, so that they need not import torch again."""
SHELL = "#!/bin/sh\nset -e\nexport LR=1\ncd .\npython train.py from-shell\n"


@pytest.fixture
def project(tmp_path):
    """Return a small training project."""
    files = {
        "train.py": HERE,
        "package/__init__.py": "",
        "package/module.py": HERE,
        "with_shebang": f"#!{sys.executable} -B\n{HERE}",
        "with_shebang.py": f"#!{sys.executable} -B\n{HERE}",
        "run.sh": SHELL,
        "Makefile": "train:\n\t@python train.py from-make\n",
        # Like `uv run`, `conda run` or `accelerate launch`: it sets up an environment, and the program replaces it.
        "wrapper": '#!/bin/sh\n[ "$1" = run ] || exit 9\nshift\nWRAPPED=1 exec "$@"\n',
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if text.startswith("#!") else 0o644)
    return tmp_path


@pytest.fixture(scope="module")
def trained():
    """Return what a plain run prints while it trains."""
    return subprocess.run([sys.executable, "-c", TRAIN + "train()"], capture_output=True, check=True).stdout


def check(trained, plain, profiled, status=3):
    assert plain.status == status, plain.err.decode()
    assert (plain.status, trained + plain.out) == (profiled.status, profiled.out)
    assert plain.err == profiled.err
    (rank,) = profiled.ranks
    assert [step.pid for step in profiled.steps] == [rank.pid] * STEPS


@pytest.mark.parametrize(
    ("plain", "words"),
    [
        (("python", "train.py", "a"), ("train.py", "a")),
        (("python", "-m", "package.module", "a"), ("-m", "package.module", "a")),
        (("python", "-X", "dev", "-u", "train.py"), ()),
        (("python", "-c", HERE, "a"), ()),
        (("./with_shebang", "a"), ()),
        (("./with_shebang.py", "a"), ()),
        (("./run.sh",), ()),
        (("env", "X=1", "nice", "-n", "1", "nohup", "timeout", "100", "python", "train.py"), ()),
        (("./wrapper", "run", "python", "train.py"), ()),
    ],
    ids=lambda words: " ".join(words[:4]).partition("\n")[0],
)
def test_command_behaves_the_same_under_profile_train(project, start, start_profiled, trained, plain, words):
    """If the second command is empty, it is the first with `profile-train` in front."""
    command = start(*plain, cwd=project, env=TRAINED)
    profiled = start_profiled(*(words or plain), cwd=project)

    check(trained, command.finish(), profiled.finish())


def test_program_read_from_stdin_is_recorded(start, start_profiled, trained):
    command = start("python", "-", "a", stdin=HERE.encode(), env=TRAINED)
    profiled = start_profiled("python", "-", "a", stdin=HERE.encode())

    check(trained, command.finish(), profiled.finish())


def test_make_recipe_failure_is_unchanged(project, start, start_profiled, trained):
    command = start("make", "train", cwd=project, env=TRAINED)
    profiled = start_profiled("make", "train", cwd=project)

    check(trained, command.finish(), profiled.finish(), status=2)


def test_every_torchrun_rank_is_recorded(script, start, start_profiled):
    ranks = """
torch.distributed.init_process_group("gloo")
total = torch.tensor([1.0])
torch.distributed.all_reduce(total)
train(os.environ["RANK"])
sys.stdout.write("%s %s %s\\n" % (total.item(), os.environ["WORLD_SIZE"], sys.argv))
sys.stdout.flush()
torch.distributed.destroy_process_group()
"""
    what = ("--standalone", "--nproc-per-node", "2", script(TRAIN + ranks), "a")
    env = {"OMP_NUM_THREADS": "1"}  # otherwise torchrun prints that it sets this
    plain = start("torchrun", *what, env=env).finish()
    # `torchrun` itself is recorded in tests/foreign/test_torchrun.py.
    profiled = start_profiled("python", "-m", "torch.distributed.run", *what, env=env).finish()

    assert plain.status == 0, plain.err.decode()
    assert profiled.status == 0, profiled.err.decode()
    assert sorted(plain.out.splitlines()) == sorted(profiled.out.splitlines())
    assert sorted(rank.rank for rank in profiled.ranks) == [0, 1]
    assert {rank.world_size for rank in profiled.ranks} == {2}
    assert len(profiled.steps) == 2 * STEPS


@pytest.mark.parametrize(
    "how",
    [
        "torch.multiprocessing.spawn(train, nprocs=2)",
        """
    child = torch.multiprocessing.get_context("fork").Process(target=train)
    child.start()
    child.join()
    import subprocess
    subprocess.call([sys.executable, "-c", "print('trains nothing', flush=True)"])
    subprocess.call([sys.executable, "train.py"])
""",
    ],
    ids=["spawn", "fork and subprocess"],
)
def test_every_training_process_is_recorded(project, start_plain, start_profiled, how):
    program = project / "parent.py"
    program.write_text(f"{TRAIN}if __name__ == '__main__':\n    {how}")
    plain, profiled = (begin(program, cwd=project).finish() for begin in (start_plain, start_profiled))

    assert (plain.status, plain.err) == (profiled.status, profiled.err) == (0, b"")
    assert sorted(plain.out.splitlines()) == sorted(profiled.out.splitlines())
    assert len(profiled.ranks) == 2
    assert len(profiled.steps) == 2 * STEPS


def test_nested_profile_train_records_once(project, start, start_profiled, trained):
    plain = start("python", "train.py", cwd=project, env=TRAINED)
    code = "import sys; sys.path[0] = sys.argv.pop(1); from advisor.cli import main; raise SystemExit(main())"
    inner = ("python", "-c", code, str(ROOT), "--no-report", "--out", "inner", "train.py")
    outer = start_profiled(*inner, cwd=project)
    plain, outer = plain.finish(), outer.finish()

    assert (plain.status, trained + plain.out) == (outer.status, outer.out)
    assert os.listdir(project / "inner")
    assert outer.ranks == []
