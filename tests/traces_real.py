"""Traces of real machines, in the folder that PROFILE_TRAIN_TRACES names; none are part of this project."""

import os
from pathlib import Path

FOLDER = os.environ.get("PROFILE_TRAIN_TRACES", "")
PATHS = sorted(Path(FOLDER).glob("*.json.gz")) if FOLDER else []
