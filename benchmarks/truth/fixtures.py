"""The GPU rows: runs on GPUs that this machine lacks, passed to the advisor as metrics. The tests use them too."""

import sys

import checkout
from scores import RowResult
from seen import Seen
from table import Row


def results(cores):
    """Return the results of every GPU row; raise ImportError where the tests cannot be imported."""
    sys.path.append(str(checkout.ROOT / "tests" / "support"))
    import gpu_truth
    from gpu_runs import gpu_metrics

    from advisor.judging.judge import judge

    def one(fixture):
        judgment = judge(gpu_metrics(fixture.changes, phases=fixture.phases))
        row = Row(
            id=fixture.name,
            program="",
            order=() if fixture.first is None else (fixture.first, *fixture.then),
            absent=tuple(sorted(fixture.absent)),
        )
        return RowResult(row, cores, [Seen(above=tuple(gpu_truth.above_information(judgment)))])

    return [one(fixture) for fixture in gpu_truth.ROWS]
