"""Real traces by name."""

from pathlib import Path

import pytest
from traces_real import FOLDER


@pytest.fixture
def real():
    """Return the path of a trace by name; skip the test if there is none."""

    def find(name: str) -> Path:
        path = Path(FOLDER) / f"{name}.json.gz"
        if not FOLDER or not path.is_file():
            pytest.skip(f"needs {name}.json.gz in the folder PROFILE_TRAIN_TRACES")
        return path

    return find
