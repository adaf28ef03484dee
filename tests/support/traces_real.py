"""Traces of real machines, in the folder that PROFILE_TRAIN_TRACES names; none are part of this project."""

import os
from pathlib import Path

FOLDER = os.environ.get("PROFILE_TRAIN_TRACES", "")
PATHS = sorted(Path(FOLDER).glob("*.json.gz")) if FOLDER else []

GPU = (
    "hta_df_index_resolver",
    "hta_nccl",
    "hta_negative_queue_rank0",
    "hta_sampled_rank-0",
    "hta_sampled_rank-1",
    "tracelens_h100_bert",
    "tracelens_mi300_bert",
)
"""Names of the traces on which other tools must agree with our results."""
