"""Programs with several processes and threads: those that train are recorded, the others cost nothing."""

import json
from collections import Counter

from programs import TORCH

from profiler.schema import TAG_FIRST

FORKS = f"""
IMPORTS = {TORCH!r}
import subprocess
"""
FORKS += """

def seen(name):
    \"\"\"The files that processes have for their events, as they stand now.\"\"\"
    settings = os.environ.get("PROFILE_TRAIN_AGENT")
    if settings and os.path.isdir(json.loads(settings)["rings"]):
        with open(name + ".seen", "w") as file:
            json.dump([path for path in sorted(os.listdir(json.loads(settings)["rings"])) if path[0].isdigit()], file)

def child(body):
    pid = os.fork()
    if pid == 0:
        body()
        sys.exit()
    assert os.waitpid(pid, 0) == (pid, 0)

def train(name, steps):
    torch.manual_seed(0)
    model, optimizer = made()
    losses = [update(model, optimizer, torch.ones(4, 8)) for _ in range(steps)]
    tell(name, steps=steps, losses=losses)
    if "PROFILE_TRAIN_AGENT" in os.environ:  # the plain run beside it has PIDs of its own
        with open(f"{name}.pid", "w") as file: file.write(str(os.getpid()))

def idle():
    torch.ones(8).sum().item()
    time.sleep(0.05)

if __name__ == "__main__":
    if len(sys.argv) > 1:
        train(sys.argv[1], 4)
        sys.exit()
    child(idle)
    seen("before")
    train("program", 5)
    child(lambda: train("forked", 6))
    child(idle)
    child(lambda: os._exit(0))
    subprocess.run(["true"], check=True)
    subprocess.run([sys.executable, "-c", IMPORTS], check=True)
    subprocess.run([sys.executable, __file__, "started"], check=True)
    tell("end", steps=0)
    seen("after")
"""


def test_only_processes_that_train_are_recorded(loop, run_both, tmp_path):
    plain, profiled = run_both(loop(FORKS))

    assert (plain.status, plain.out) == (profiled.status, profiled.out)
    assert profiled.err == b""
    pids = {name: int((tmp_path / f"{name}.pid").read_text()) for name in ("program", "forked", "started")}
    steps = Counter(step.pid for step in profiled.steps)
    assert len(profiled.tables.processes) == len(pids)
    assert {name: steps[pid] for name, pid in pids.items()} == {"program": 5, "forked": 6, "started": 4}
    for pid in pids.values():
        mine = [step for step in profiled.steps if step.pid == pid]
        assert [step.index for step in mine] == list(range(len(mine)))
        assert [step.tags for step in mine] == [TAG_FIRST] + [0] * (len(mine) - 1)
    assert json.loads((tmp_path / "before.seen").read_text()) == []
    files = json.loads((tmp_path / "after.seen").read_text())
    assert sorted(int(name.partition("-")[0]) for name in files) == sorted([*pids.values()] * 2)


THREADS = """
def train(name, seconds, steps, results):
    torch.manual_seed(0)
    model, optimizer = made(seconds)
    loader = DataLoader(Slow(4 * steps), 4, generator=torch.Generator())
    results[name] = [update(model, optimizer, batch) for batch in loader]

results = {}
threads = [
    threading.Thread(target=train, args=("quick", 0.005, 60, results)),
    threading.Thread(target=train, args=("slow", 0.025, 24, results)),
]
for thread in threads: thread.start()
for thread in threads: thread.join()
tell("both", steps=84, losses=[len(losses) for losses in results.values()])
"""


def test_two_threads_that_train_at_once(loop, run_both, parts):
    plain, profiled = run_both(loop(THREADS))

    assert (plain.status, plain.out) == (profiled.status, profiled.out)
    (part,) = parts(profiled).values()
    steps = part.steps
    assert [step.index for step in steps] == list(range(84))
    assert sum(bool(step.tags & TAG_FIRST) for step in steps) == 2
    slow = [step for step in steps if (step.forward or 0) >= 0.025]
    assert len(slow) >= 24  # a quick step that had to wait for a core may take as long
    assert all(step.forward >= 0.005 for step in steps)
    for step in steps:
        assert step.data_wait >= 4 * 0.002
        assert step.backward > 0
        assert step.batches == 1
        assert step.micro_steps == 1
