"""Export a run as a folder of Parquet files, one per table, for pandas, DuckDB, Polars and Spark."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path

from advisor.atomic_write import whole
from advisor.export import tables
from advisor.export.extra import extra
from advisor.export.tables import Column, Rows

TOGETHER = 50_000
"""Rows of a row group, all in memory at once."""


@contextmanager
def begin(folder: Path, name: str, columns: Sequence[Column]) -> Iterator[Callable[[Rows], None]]:
    """Open the file of one table, and yield a function that takes its rows."""
    pa, parquet = extra("pyarrow", "Parquet"), extra("pyarrow.parquet", "Parquet")
    types = {int: pa.int64(), float: pa.float64(), bool: pa.bool_(), str: pa.string()}
    schema = pa.schema(
        [
            pa.field(column.name, types[column.type], metadata={"unit": column.unit} if column.unit else None)
            for column in columns
        ]
    )

    def take(rows: Rows) -> None:
        iterator = iter(rows)
        while batch := list(islice(iterator, TOGETHER)):
            cells = zip(*batch, strict=True)
            arrays = [pa.array(values, field.type) for values, field in zip(cells, schema, strict=True)]
            writer.write_batch(pa.record_batch(arrays, schema))

    with whole(folder / f"{name}.parquet") as temporary, parquet.ParquetWriter(temporary, schema) as writer:
        yield take


write = partial(tables.write, begin)
"""Write a file for each table, with the column names of the CSV files. The units are in the fields' metadata, too."""
