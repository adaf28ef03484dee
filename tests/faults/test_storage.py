"""Storage fails: no room, no permission, unusual filesystems, a run folder that changes."""

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from programs import COMMAND, TRAINS, Ran, alive, wait_until

from profiler.errors import ProfilerError
from profiler.schema import Step
from profiler.store import Writer, find, read

ONLY_RECORD = ("--no-report", "--no-windows")
REPORT = ("--no-windows",)

# Trains twice; waits for a file in between.
TWICE = """
train()
while not os.path.exists(sys.argv[1]): time.sleep(0.01)
train()
"""
STEPS = 24

# The end of a step is known only when the next one begins: a step that the recorder held when it was cut off is not in
# the rest of any ring.
CUT_OFF = (STEPS - 1, STEPS)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Return what the program prints without the profiler."""
    folder = tmp_path_factory.mktemp("plain")
    (folder / "train.py").write_text(f"{TRAINS}\n{TWICE}")
    done = subprocess.run([sys.executable, "train.py", "train.py"], cwd=folder, capture_output=True, check=True)
    assert done.stdout.count(b"12 ") == 2
    assert done.stderr == b""
    return done.stdout


@pytest.fixture
def program(training, tmp_path):
    """Return the program's command, and the file that it waits for, which already exists."""
    (tmp_path / "go").touch()
    return training(TWICE), tmp_path / "go"


@pytest.fixture
def light(script):
    """Return a program that ends at once, with its own exit status."""
    return script("import sys; print('trained'); sys.exit(3)")


class Disk:
    """An in-memory filesystem of 1 MiB."""

    def __init__(self, path):
        self.path = path

    def fill(self):
        with (self.path / "fill").open("ab", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                return

    def become(self, option):
        subprocess.run(["mount", "-o", f"remount,{option}", self.path], check=True)


@pytest.fixture
def disk(tmp_path):
    path = tmp_path / "disk"
    path.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", path], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"needs to mount a filesystem, which requires root: {done.stderr.strip()}")
    yield Disk(path)
    subprocess.run(["umount", "--lazy", path], check=True)


@pytest.fixture
def apart(start):
    """Return a function that runs a command line in its own mount namespace, after the shell commands `changes`."""
    if subprocess.run(["unshare", "--mount", "--uts", "true"], capture_output=True).returncode:
        pytest.skip("needs its own namespace, which requires root")

    def run(changes, *words, folder=None, **how):
        return start(
            *("unshare", "--mount", "--uts", "sh", "-ec", f'{changes}\nexec "$@"', "sh"), *words, folder=folder, **how
        ).finish()

    return run


@pytest.fixture(scope="session")
def refusing(tmp_path_factory):
    """Return the environment in which `REFUSE_MMAP` and `REFUSE_LOCKS` name folders of a limited filesystem."""
    if sys.platform != "linux" or not shutil.which("gcc"):
        pytest.skip("needs Linux and gcc to build a filesystem that refuses writes")
    library = tmp_path_factory.mktemp("refusing") / "refusing.so"
    source = Path(__file__).with_name("refusing_files.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return {"LD_PRELOAD": str(library)}


def kept_in(ran):
    """Return the run, with the folder that was used instead of the requested one."""
    return Ran(ran.status, ran.out, ran.err, Path(re.search(r"kept in (.+)\.\n", ran.err.decode())[1]))


def stored(folder):
    """Return how many steps a reader finds at this moment."""
    try:
        return sum(len(read(path).steps) for path in find(folder))
    except ProfilerError:
        return 0


def half_way(running, folder):
    """Wait until the steps of the first half are stored."""
    running.wait_for("12 ")
    wait_until(lambda: stored(folder) >= STEPS // 2 - 1, "the steps of the first half")


def result(folder):
    return json.loads((folder / "result.json").read_text())


def unharmed(ran, plain, status=0):
    assert (ran.status, ran.out) == (status, plain)
    assert b"Traceback" not in ran.err


# ---- no room ----


@pytest.mark.fault(
    "The disk of the run folder is full from the start",
    "unchanged",
    "everything, in a temporary folder",
    "where the run is kept, and why",
)
def test_a_disk_that_is_full_from_the_start(program, plain, disk, run_profiled, tmp_path):
    disk.fill()
    ran = run_profiled(*program, out=disk.path / "run", env={"TMPDIR": str(tmp_path)})

    unharmed(ran, plain)
    assert f"{disk.path / 'run'} " in ran.err.decode()
    assert "(database or disk is full)" in ran.err.decode()  # SQLite's own message
    assert len(kept_in(ran).steps) == STEPS
    assert not (disk.path / "run").exists()


@pytest.mark.fault(
    "The disk of the run folder fills up during the run and stays full",
    "unchanged",
    "all that was written; the rest waits in the rings until there is room; the step between the two is lost",
    "that the end could not be written, and the command that completes it once there is room",
)
def test_a_disk_that_fills_up(program, plain, disk, start_profiled, report):
    words, go = program
    go.unlink()
    folder = disk.path / "run"
    running = start_profiled(words, go, out=folder, options=REPORT)
    half_way(running, folder)
    disk.fill()
    go.touch()
    ran = running.finish()

    unharmed(ran, plain)
    stderr = ran.err.decode()
    assert f": profile-train report {folder}\n" in stderr
    assert stored(folder) >= STEPS // 2 - 1

    disk.become("size=8m")
    again = report(folder)
    assert again.status == 0
    assert b"the rest was read from the program's rings" in again.err
    assert result(folder)["steps"]["count"] in CUT_OFF
    assert (result(folder)["run"]["ended"], result(folder)["overhead"]["events_lost"]) == ("completed", 0)


@pytest.mark.process
def test_disk_that_is_temporarily_full_delays_writing(disk):
    writer = Writer(disk.path / "run", "node")
    for at in range(3):
        writer.add(Step(pid=1, index=at, start=float(at), duration=1.0))
        if at == 1:
            disk.fill()
        assert writer.commit() is (at != 1)
        (disk.path / "fill").unlink(missing_ok=True)
    assert writer.close()
    tables = read(writer.path)
    assert len(tables.steps) == 3
    (problem,) = tables.problems
    assert problem.code == "delayed"


@pytest.mark.fault(
    "/dev/shm and the temporary folder, where events wait for the recorder, are full",
    "unchanged",
    "everything: events wait in the run folder",
    "nothing",
)
def test_no_room_for_rings_in_memory(program, plain, disk, apart, tmp_path):
    disk.fill()
    ran = apart(
        "mount -t tmpfs -o size=1m none /dev/shm",
        *(*COMMAND, *ONLY_RECORD, "--out", tmp_path / "run", *program),
        env={"TMPDIR": str(disk.path)},
        folder=tmp_path / "run",
    )

    unharmed(ran, plain)
    assert ran.err == b""
    assert len(ran.steps) == STEPS
    assert not (ran.folder / "rings").exists()


@pytest.mark.fault(
    "There is no room for events anywhere",
    "unchanged",
    "what is visible from outside: utilization of the machine; no steps",
    "which process is not in the recording, and why",
)
def test_no_room_for_rings_anywhere(program, plain, disk, apart, check_report):
    folder = disk.path / "run"
    ran = apart(
        "mount -t tmpfs -o size=1m none /dev/shm",
        *(*COMMAND, *ONLY_RECORD, "--out", folder, *program),
        env={"TMPDIR": str(disk.path)},
        folder=folder,
    )

    unharmed(ran, plain)
    assert ran.tables.host_samples
    assert ran.run.outcome == "completed"
    disk.become("size=8m")
    check_report(ran, "is not in this recording, because its events could not be stored: [Errno 28]")


# ---- no permission, no place ----


@pytest.mark.fault(
    "The run folder is on a read-only filesystem",
    "unchanged",
    "everything, in a temporary folder",
    "where the run is kept, and why",
)
def test_a_read_only_run_folder(light, disk, run_profiled, tmp_path):
    disk.become("ro")
    ran = run_profiled(light, out=disk.path / "run", env={"TMPDIR": str(tmp_path)})

    unharmed(ran, b"trained\n", 3)
    assert os.strerror(errno.EROFS) in ran.err.decode()
    assert kept_in(ran).run.exit_status == 3


@pytest.mark.fault(
    "Nothing can be written anywhere: neither the run folder nor a temporary one",
    "unchanged",
    "nothing",
    "at the start and at the end: that nothing is recorded, and why",
)
def test_nothing_is_writable(light, apart, tmp_path):
    ran = apart(
        "mount -o remount,bind,ro /; mount -t tmpfs -o ro none /dev/shm",
        *(*COMMAND, "--out", tmp_path / "run", light),
        folder=tmp_path / "run",
    )

    unharmed(ran, b"trained\n", 3)
    first, last = ran.err.decode().splitlines()
    assert first == last
    assert f"{tmp_path / 'run'} " in first
    assert os.strerror(errno.EROFS) in first
    assert not (tmp_path / "run").exists()


@pytest.mark.fault("`--out` names a file", "unchanged", "everything, in a temporary folder", "where, and why")
def test_a_run_folder_that_is_a_file(light, run_profiled, tmp_path):
    (tmp_path / "notes").write_text("mine")
    ran = run_profiled(light, out=tmp_path / "notes", env={"TMPDIR": str(tmp_path)})

    unharmed(ran, b"trained\n", 3)
    assert os.strerror(errno.ENOTDIR) in ran.err.decode()
    assert kept_in(ran).run.exit_status == 3
    assert (tmp_path / "notes").read_text() == "mine"


@pytest.mark.fault(
    "`--out` names a folder that holds the user's own files under names that profile-train uses",
    "unchanged",
    "everything, in a folder next to it; none of the user's files is touched",
    "which file is in the way, and where the run is kept",
)
@pytest.mark.parametrize("theirs", ["report.html", "windows/photo.png", "run-of-cards.db"])
def test_run_folder_with_conflicting_user_files_is_not_used(light, run_profiled, tmp_path, theirs):
    theirs = tmp_path / "mine" / theirs
    theirs.parent.mkdir(parents=True)
    theirs.write_text("mine")
    ran = run_profiled(light, out=tmp_path / "mine")

    unharmed(ran, b"trained\n", 3)
    assert kept_in(ran).folder.name == "mine-2"
    assert kept_in(ran).run.exit_status == 3
    assert [path for path in (tmp_path / "mine").rglob("*") if path.is_file()] == [theirs]
    assert theirs.read_text() == "mine"


def test_reusing_a_run_folder_replaces_only_the_run(light, run_profiled, tmp_path):
    first = run_profiled(light, out=tmp_path / "run", options=REPORT)
    id = first.run.id
    (first.folder / "notes.txt").write_text("mine")
    again = run_profiled(light, out=first.folder)

    assert b"earlier recording" in again.err
    assert again.run.id != id
    assert {path.name for path in again.folder.iterdir()} == {"notes.txt", *(path.name for path in find(again.folder))}


# ---- the run folder goes away, or has a strange name ----


@pytest.mark.fault(
    "The run folder is deleted during the run",
    "unchanged",
    "everything: the folder is created again at the end",
    "that it was deleted and created again",
)
def test_a_run_folder_that_is_deleted(program, plain, start_profiled, check_report, tmp_path):
    words, go = program
    go.unlink()
    running = start_profiled(words, go, out=tmp_path / "run")
    half_way(running, tmp_path / "run")
    shutil.rmtree(tmp_path / "run")
    go.touch()
    ran = running.finish()

    unharmed(ran, plain)
    assert len(ran.steps) == STEPS
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o700
    check_report(ran, "was deleted during the recording, and was created again.")


@pytest.mark.fault(
    "The name of the run folder contains spaces, quotes, a line break, wildcards and invalid UTF-8",
    "unchanged",
    "everything",
    "the usual report",
)
def test_a_run_folder_with_a_strange_name(program, plain, run_profiled, report, tmp_path):
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/a b'c\"d\n%20#?[x]*{y}<b>\xff\xe9"))
    ran = run_profiled(*program, out=folder, options=REPORT)

    unharmed(ran, plain)
    assert len(ran.steps) == STEPS
    assert result(folder)["steps"]["count"] == STEPS
    assert "report.html" in ran.err.decode(errors="replace")
    (folder / "report.html").unlink()
    again = report(folder)
    assert (again.status, again.out) == (0, b"")
    assert (folder / "report.html").exists()


# ---- limited filesystems ----


@pytest.mark.fault(
    "The run folder is on a filesystem without shared mmap, so SQLite's write-ahead log is refused",
    "unchanged",
    "everything, with SQLite's rollback journal",
    "nothing",
)
def test_a_filesystem_without_shared_memory(program, plain, start_profiled, refusing, tmp_path):
    words, go = program
    go.unlink()
    folder = tmp_path / "run"
    running = start_profiled(words, go, out=folder, env={**refusing, "REFUSE_MMAP": str(folder)})
    half_way(running, folder)  # it is readable meanwhile
    assert not list(folder.glob("*-wal"))
    go.touch()
    ran = running.finish()

    unharmed(ran, plain)
    assert ran.err == b""
    assert len(ran.steps) == STEPS


@pytest.mark.fault(
    "No file can be mapped, not even in /dev/shm",
    "unchanged",
    "what is visible from outside: utilization of the machine; no steps",
    "which process is not in the recording, and why",
)
def test_mmap_fails_everywhere(program, plain, run_profiled, refusing, check_report):
    ran = run_profiled(*program, env={**refusing, "REFUSE_MMAP": "/"})

    unharmed(ran, plain)
    assert ran.tables.host_samples
    check_report(ran, "is not in this recording, because its events could not be stored: [Errno 19] No such device")


@pytest.mark.fault(
    "The run folder is on a filesystem without file locks",
    "unchanged",
    "everything, in a temporary folder",
    "where the run is kept, and why",
)
def test_a_filesystem_without_locks(light, run_profiled, refusing, tmp_path):
    (tmp_path / "tmp").mkdir()
    environment = {**refusing, "REFUSE_LOCKS": str(tmp_path / "run"), "TMPDIR": str(tmp_path / "tmp")}
    ran = run_profiled(light, out=tmp_path / "run", env=environment)

    unharmed(ran, b"trained\n", 3)
    assert "(database is locked)" in ran.err.decode()  # SQLite's own message
    assert kept_in(ran).run.exit_status == 3


@pytest.mark.fault(
    "A container hides the machine: /proc/stat and /proc/meminfo are empty",
    "unchanged",
    "everything else; CPU and memory of the machine are not measured, rather than zero",
    "what is not measured",
)
def test_empty_proc_files_are_not_measured(script, apart, tmp_path):
    ran = apart(
        "mount --bind /dev/null /proc/stat; mount --bind /dev/null /proc/meminfo",
        *(*COMMAND, *ONLY_RECORD, "--out", tmp_path / "run", script("import time; time.sleep(3); print('trained')")),
        folder=tmp_path / "run",
    )

    unharmed(ran, b"trained\n")
    assert ran.err == b""
    assert ran.run.memory_total > 0
    last = next(sample for sample in reversed(ran.tables.host_samples) if sample.processes)
    assert last.cpu is not None
    assert (last.machine_cpu, last.steal, last.memory_available) == (None, None, None)


# ---- readers ----


@pytest.mark.fault(
    "A report is made during training, from the run and from a copy of its folder",
    "unchanged",
    "everything; the reports show what was written so far",
    "that the run is still active",
)
def test_report_of_an_active_run(program, plain, start_profiled, report, tmp_path):
    words, go = program
    go.unlink()
    folder, copy = tmp_path / "run", tmp_path / "copy"
    running = start_profiled(words, go, out=folder)
    half_way(running, folder)
    shutil.copytree(folder, copy)
    for one in (folder, copy):
        made = report(one)
        assert made.status == 0
        assert STEPS // 2 - 1 <= result(one)["steps"]["count"] <= STEPS // 2
        assert result(one)["run"]["ended"] == "running"
        assert b"Traceback" not in made.err
    assert b"This folder was copied during the recording" in made.err
    go.touch()
    ran = running.finish()

    unharmed(ran, plain)
    assert len(ran.steps) == STEPS
    assert ran.run.outcome == "completed"


@pytest.mark.fault(
    "The recorder is killed; then the run folder is copied, read on a machine with another name, or made read-only",
    "unchanged",
    "the data in the program's rings stays there for the original folder; the step that the recorder held is lost",
    "that it is a copy; for a read-only folder, where the rest is and how to write the report elsewhere",
)
@pytest.mark.fault(
    "Two reports are made at once from a run whose recorder was killed",
    "unchanged",
    "everything that is left, once",
    "in one of them, that the rest was read from the program's rings",
)
def test_a_run_folder_whose_recorder_was_killed(program, plain, start_profiled, start, apart, report, tmp_path):
    words, go = program
    go.unlink()
    folder, copy, elsewhere = tmp_path / "run", tmp_path / "copy", tmp_path / "elsewhere"
    running = start_profiled(words, go, out=folder)
    half_way(running, folder)
    os.kill(running.pid, signal.SIGKILL)
    assert running.finish().status == -signal.SIGKILL
    (agent,) = read(find(folder)[0]).processes
    go.touch()
    wait_until(lambda: not alive(agent.pid), "the end of the program")
    assert running.out.encode() == plain

    shutil.copytree(folder, copy)
    assert b"This folder was copied" in report(copy).err
    half = result(copy)["steps"]["count"]
    assert half < STEPS

    assert apart("hostname another-machine", *COMMAND, "report", folder).status == 0
    assert result(folder)["steps"]["count"] == half

    read_only = f"mount --bind '{folder}' '{folder}'; mount -o remount,bind,ro '{folder}'"
    refused = apart(read_only, *COMMAND, "report", folder)
    assert refused.status == 1
    assert b"result.json could not be written: Read-only file system." in refused.err
    assert f"profile-train report {folder} --out FOLDER" in refused.err.decode()
    assert b"the program's remaining events are still in" in refused.err
    made = apart(read_only, *COMMAND, "report", folder, "--out", elsewhere)
    assert made.status == 0
    assert result(elsewhere)["steps"]["count"] == half

    both = [start(*COMMAND, "report", folder) for _ in range(2)]
    both = [each.finish() for each in both]
    assert [each.status for each in both] == [0, 0]
    assert sum(b"the rest was read from the program's rings" in each.err for each in both) == 1
    assert b"Traceback" not in b"".join(each.err for each in [refused, made, *both])
    assert result(folder)["steps"]["count"] in CUT_OFF
    assert len(read(find(folder)[0]).steps) in CUT_OFF
