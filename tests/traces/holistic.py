"""Print results of Holistic Trace Analysis as JSON; run by a Python that has it. Arguments: the traces, by rank."""

import json
import os
import sys

os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"  # otherwise it cuts off nanoseconds

from hta.trace_analysis import TraceAnalysis


def main(paths: list[str]) -> None:
    analysis = TraceAnalysis(trace_files=dict(enumerate(paths)), include_last_profiler_step=True)
    ranks = list(range(len(paths)))
    time = analysis.get_temporal_breakdown(visualize=False).set_index("rank")
    results = {
        "breakdown": [
            {part: float(time.loc[rank, f"{part}_time(us)"]) for part in ("idle", "compute", "non_compute", "kernel")}
            for rank in ranks
        ],
        "overlap_percent": analysis.get_comm_comp_overlap(visualize=False)
        .set_index("rank")["comp_comm_overlap_pctg"]
        .tolist(),
        "queue": [],
        "launches": [],
    }
    queues = analysis.get_queue_length_time_series(ranks)
    launches = analysis.get_cuda_kernel_launch_stats(ranks=ranks, visualize=False)
    for rank in ranks:
        series = queues.get(rank)
        by_stream = {} if series is None else dict(tuple(series.groupby("stream")))
        results["queue"].append(
            {str(stream): [int(each.queue_length.max()), len(each)] for stream, each in by_stream.items()}
        )
        each = launches[rank]
        results["launches"].append(
            {
                "count": len(each),
                "cpu": float(each.cpu_duration.sum()),
                "delay": float(each.launch_delay.sum()),
            }
        )
    json.dump(results, sys.stdout)


main(sys.argv[1:])
