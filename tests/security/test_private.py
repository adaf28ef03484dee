"""Files of a run are private to its user from the first moment, whatever the umask and whoever shares the folder."""

import contextlib
import json
import os
import socket
import stat
import subprocess
import sys
import textwrap
import threading
from dataclasses import asdict
from pathlib import Path

import pytest
from programs import PATIENCE, TORCH

from profiler import private
from profiler.errors import ProfilerError
from profiler.recorder import folder as run_folder
from profiler.recorder.record import finish_orphan
from profiler.schema import Run
from profiler.store import Writer

PROGRAM = """
    import json, os, time, torch

    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    end = time.time() + 1.5
    for i in range(100_000):
        optimizer.zero_grad()
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
        if time.time() > end: break

    settings = json.loads(os.environ["PROFILE_TRAIN_AGENT"])
    for folder in (settings["rings"], settings["windows"]):
        print(oct(os.stat(folder).st_mode & 0o777))
        for name in os.listdir(folder):
            print(oct(os.stat(os.path.join(folder, name)).st_mode & 0o777), name)
    print(settings["rings"], oct(os.umask(0)))
"""


def modes(folder):
    """Return the modes of the folder and of everything in it."""
    return {path.name: stat.S_IMODE(path.lstat().st_mode) for path in (folder, *folder.rglob("*"))}


@contextlib.contextmanager
def umask(mask):
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@contextlib.contextmanager
def widest_seen(*folders):
    """Yield the permission bits for others that any file in the folders had at any moment, by name."""
    seen, over = {}, threading.Event()

    def look():
        while not over.wait(0.002):
            for parent, inner, files in (each for folder in folders for each in os.walk(folder)):  # they come and go
                for name in (*inner, *files):
                    with contextlib.suppress(OSError):
                        seen[name] = seen.get(name, 0) | os.lstat(os.path.join(parent, name)).st_mode & 0o077

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()


@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_files_of_a_run_are_private_from_their_creation(script, start_profiled, tmp_path, mask):
    run = tmp_path / "new" / "run"
    with umask(mask), widest_seen(tmp_path / "new") as seen:
        ran = start_profiled(script(TORCH + textwrap.dedent(PROGRAM)), options=("--budget", "0.5"), out=run).finish()

    assert ran.status == 0, ran.err
    *listed, last = ran.out.decode().splitlines()
    rings, masked = last.split()
    assert masked == oct(mask)  # the program's own umask is unchanged
    folders = [line for line in listed if " " not in line]
    files = dict(reversed(line.split(" ", 1)) for line in listed if " " in line)
    assert folders == ["0o700", "0o700"]
    assert {Path(name).suffix for name in files} >= {".ring", ".facts", ".json"}
    assert set(files.values()) == {"0o600"}
    assert not Path(rings).exists()

    left = modes(run)
    assert {"report.html", "report.md", "result.json", "windows"} < set(left)
    assert {name: mode for name, mode in left.items() if mode != (0o700 if name in ("run", "windows") else 0o600)} == {}
    assert {name for name, bits in seen.items() if bits} == set()
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o755 & ~mask


def test_existing_folder_keeps_its_mode_but_files_in_it_are_private(script, run_profiled, tmp_path):
    out = tmp_path / "shared"
    out.mkdir()
    out.chmod(0o755)

    ran = run_profiled(script(TORCH), out=out)

    assert b"can look into" in ran.err
    assert stat.S_IMODE(out.stat().st_mode) == 0o755
    assert all(mode & 0o077 == 0 for name, mode in modes(out).items() if name != "shared")


def test_ring_folder_name_is_unpredictable_and_private(tmp_path):
    first, second = run_folder.make_rings(tmp_path), run_folder.make_rings(tmp_path)
    try:
        assert first != second
        assert modes(first) == {first.name: 0o700, "problems": 0o600}
    finally:
        for rings in (first, second):
            run_folder.remove_rings(rings)
    assert not first.exists()


@pytest.mark.parametrize("name", ["rings", "windows"])
def test_symlink_in_place_of_our_folder_is_not_followed(tmp_path, monkeypatch, name):
    monkeypatch.setattr(run_folder, "RINGS_ROOM", 1 << 62)  # room only in the run folder
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    run = tmp_path / "run"
    run.mkdir()
    (run / name).symlink_to(tmp_path / "elsewhere")

    with pytest.raises(ProfilerError):
        (run_folder.make_rings if name == "rings" else run_folder.make_windows)(run)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_symlink_in_place_of_our_file_is_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    run = tmp_path / "run"
    run.mkdir(mode=0o700)
    for name in (f"{run_folder.NOTE}.new", "run-node.db"):
        (run / name).symlink_to(victim)

    run_folder.write_note(run, NOTE)
    with pytest.raises(ProfilerError, match="symbolic links"):
        Writer(run, "node")

    assert victim.read_text() == "mine"
    assert stat.S_IMODE((run / run_folder.NOTE).lstat().st_mode) == 0o600


RUN = Run(
    id="a",
    command=("x.py",),
    cwd="/",
    host=socket.gethostname(),
    started_at=1.7e9,
    cores=1.0,
    cores_total=1,
    memory_total=1,
    platform="Linux",
    python="3.11",
    version="0",
)
NOTE = run_folder.RecordingNote(
    rings="/nowhere", origin=0, recorder=2**22 + 1, recorder_started=1.0, program=2**22 + 2, program_started=1.0
)


@pytest.mark.parametrize("name", ["photos", "profile-train-album"])
def test_foreign_run_folder_cannot_delete_files_in_other_folders(tmp_path, name):
    """`recording.json` names a folder of rings, which a finished recording removes."""
    victim = tmp_path / name
    victim.mkdir(mode=0o700)
    (victim / "diary.txt").write_text("dear diary")
    run = tmp_path / "run"
    writer = Writer(run, RUN.host)
    writer.add(RUN)
    writer.close()
    (run / run_folder.NOTE).write_text(json.dumps(asdict(NOTE) | {"rings": str(victim), "home": None}))

    finish_orphan(run)

    assert (victim / "diary.txt").read_text() == "dear diary"


@pytest.mark.parametrize(
    ("name", "mode", "ours"),
    [("profile-train-x", 0o700, True), ("profile-train-x", 0o755, False), ("other", 0o700, False)],
)
def test_ring_folders_are_recognized_by_name_and_mode(tmp_path, name, mode, ours):
    rings = tmp_path / name
    rings.mkdir()
    rings.chmod(mode)

    assert run_folder.are_rings(rings, tmp_path) is ours


@pytest.mark.skipif(os.geteuid() != 0, reason="changing a folder's owner requires root")
def test_folder_of_another_user_is_not_used(tmp_path):
    theirs = tmp_path / "profile-train-x"
    theirs.mkdir(mode=0o700)
    os.chown(theirs, 65534, 65534)

    assert not private.is_ours_alone(theirs)
    with pytest.raises(PermissionError):
        private.make_folder(theirs)


@pytest.mark.process
def test_temporary_copy_of_a_store_is_private(tmp_path):
    """Its log can only be read where SQLite may write; that is a temporary folder."""
    writer = Writer(tmp_path / "run", "node")
    writer.add(RUN)
    writer.commit()
    aside = tmp_path / "aside"
    aside.mkdir()
    read = (
        "import sqlite3, sys, pathlib\n"
        "from profiler.store import reader\n"
        "plain = reader._connect\n"
        "def connect(path, options):\n"
        "    if options == 'mode=ro': raise sqlite3.OperationalError('cannot')\n"
        "    print([oct(p.stat().st_mode & 0o777) for p in (path.parent, *path.parent.iterdir())])\n"
        "    return plain(path, options)\n"
        "reader._connect = connect\n"
        "print(len(reader.read(pathlib.Path(sys.argv[1])).runs))\n"
    )
    with umask(0):
        done = subprocess.run(
            [sys.executable, "-c", read, str(writer.path)],
            cwd=Path(__file__).parents[2],
            env=os.environ | {"TMPDIR": str(aside)},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
    writer.close()

    assert done.stdout.splitlines() == ["['0o700', '0o600', '0o600']", "1"]
    assert list(aside.iterdir()) == []
