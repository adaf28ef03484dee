"""Traces from real machines: a folder of them is named by PROFILE_TRAIN_TRACES; none are part of this project."""

import os
from pathlib import Path

import pytest

FOLDER = os.environ.get("PROFILE_TRAIN_TRACES", "")


@pytest.fixture
def real():
    """The path of one by name; skips the test where there is none."""

    def find(name: str) -> Path:
        path = Path(FOLDER) / f"{name}.json.gz"
        if not FOLDER or not path.is_file():
            pytest.skip(f"needs {name}.json.gz in the folder that PROFILE_TRAIN_TRACES names")
        return path

    return find
