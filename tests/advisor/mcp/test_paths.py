"""Paths that a client names."""

import pytest

from advisor.mcp.paths import runs, store, within
from profiler.errors import ProfilerError


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "root"
    (root / "runs/1").mkdir(parents=True)
    (root / "runs/1/run-a.db").touch()
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/run-b.db").touch()
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "runs/1/run-link.db").symlink_to(tmp_path / "secret/run-b.db")
    return root


@pytest.mark.parametrize("given", ["runs/1", "./runs/../runs/1", "--help", "new/run"])
def test_paths_in_root_become_absolute(root, given):
    assert within(root, given) == (root / given).resolve()


@pytest.mark.parametrize("given", ["..", "../root2", "/etc/passwd", "link/x", "s3://bucket/x", "file:///x", "a\0b"])
def test_paths_outside_root_are_refused(root, given):
    with pytest.raises(ProfilerError):
        within(root, given)


def test_runs_are_listed_without_following_links(root):
    assert runs(root) == ["runs/1"]


def test_a_store_that_is_a_link_to_elsewhere_is_refused(root):
    run = root / "runs/1"
    assert store(root, run, "run-a.db") == run / "run-a.db"
    for name in ("run-link.db", "../../x", ""):
        with pytest.raises(ProfilerError):
            store(root, run, name)
