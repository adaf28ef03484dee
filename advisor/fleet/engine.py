"""Map the reading of runs over many folders: in this process, in several, or on a Ray cluster."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context

from msgspec import json

from advisor.fleet.read import Rows, read
from profiler.errors import ProfilerError

FEW = 24
"""Number of folders that are read faster than processes start."""

AT_ONCE = 20_000
"""Number of folders whose rows are held in memory and written together."""


def rows(folders: Sequence[str], import_id: str, engine: str = "processes", address: str | None = None) -> list[Rows]:
    """Return the rows of each folder, in no particular order."""
    read_folder = partial(read, import_id=import_id)
    if engine == "ray":
        return _by_ray(folders, read_folder, address)
    if len(folders) <= FEW:
        return list(map(read_folder, folders))
    return list(_by_processes(folders, read_folder))


def _by_processes(folders: Sequence[str], one: partial[Rows]) -> Iterator[Rows]:
    # Not forked: DuckDB's threads run in this process.
    context, workers = get_context("spawn"), min(os.cpu_count() or 1, 16)
    read_count = 0
    try:
        with ProcessPoolExecutor(workers, context) as pool:
            for folder_rows in pool.map(one, folders, chunksize=32):
                read_count += 1
                yield folder_rows
    except BrokenProcessPool as error:
        raise ProfilerError(
            f"A process that read runs was killed near {folders[read_count]} ({error}).",
            f"Free memory, and repeat the command: it keeps the runs that were read, in groups of {AT_ONCE:,}.",
        ) from error


def _by_ray(folders: Sequence[str], one: partial[Rows], address: str | None) -> list[Rows]:
    try:
        import ray
    except ImportError as error:
        raise ProfilerError(
            f"--engine ray needs Ray, which is not installed here ({error}).", "pip install ray"
        ) from error
    if not ray.is_initialized():
        ray.init(address=address, log_to_driver=False)  # without an address: the local cluster, or a new one
    # Ray Data stores rows as columns: as JSON, a run's rows stay one value.
    dataset = ray.data.from_items([{"folder": folder} for folder in folders]).map(
        lambda row: {"rows": json.encode(one(row["folder"])).decode()}
    )
    return [json.decode(row["rows"], type=Rows) for row in dataset.iter_rows()]
