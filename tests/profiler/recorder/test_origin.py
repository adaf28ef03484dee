"""User, repository and commit of a program; git's files are read without git."""

import os

from profiler.recorder.origin import Origin, origin

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def repository(folder, head="ref: refs/heads/main\n", loose=COMMIT):
    (folder / ".git/refs/heads").mkdir(parents=True)
    (folder / ".git/HEAD").write_text(head)
    if loose:
        (folder / ".git/refs/heads/main").write_text(loose + "\n")
    return folder


def test_the_commit_of_the_scripts_repository_is_read(tmp_path):
    repository(tmp_path / "vision")
    found = origin(("vision/tools/train.py", "--lr", "1"), str(tmp_path), {"LOGNAME": "ann", "USER": "root"})
    assert found == Origin("ann", "vision", COMMIT)


def test_a_packed_reference_and_a_detached_head_are_read(tmp_path):
    packed = repository(tmp_path / "packed", loose="")
    (packed / ".git/packed-refs").write_text(f"# pack-refs\n{'f' * 40} refs/heads/maintain\n{COMMIT} refs/heads/main\n")
    detached = repository(tmp_path / "detached", head=COMMIT + "\n")
    assert origin((), str(packed), {}).commit == COMMIT
    assert origin((), str(detached), {}).commit == COMMIT


def test_worktree_has_its_own_commit(tmp_path):
    main = repository(tmp_path / "vision", loose="f" * 40)
    beside = main / ".git/worktrees/try"
    beside.mkdir(parents=True)
    (beside / "HEAD").write_text("ref: refs/heads/try\n")
    (beside / "commondir").write_text("../..\n")
    (main / ".git/refs/heads/try").write_text(COMMIT)
    (tmp_path / "try").mkdir()
    (tmp_path / "try/.git").write_text(f"gitdir: {beside}\n")
    assert origin((), str(tmp_path / "try"), {}) == Origin(None, "try", COMMIT)


def test_origin_is_empty_outside_a_repository(tmp_path):
    assert origin(("train.py",), str(tmp_path), {}) == Origin()


def test_hostile_repository_neither_blocks_nor_leaks_outside_files(tmp_path):
    outside = tmp_path / "secret"
    outside.write_text(COMMIT)
    pipe = repository(tmp_path / "pipe")
    (pipe / ".git/HEAD").unlink()
    os.mkfifo(pipe / ".git/HEAD")
    upward = repository(tmp_path / "upward", head="ref: refs/../../../secret\n")
    garbage = repository(tmp_path / "garbage", loose="<script>" + "a" * 60)
    assert [origin((), str(folder), {}).commit for folder in (pipe, upward, garbage)] == [None, None, None]
