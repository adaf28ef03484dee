"""Measure how fast traces are read, against Holistic Trace Analysis (HTA) and against minimal typed events in NumPy.

    python benchmarks/traces.py [--rounds 3] [--hta PYTHON] [--json FILE]
    python benchmarks/traces.py --tracelens PYTHON TRACE... [--rounds 3]

Cases: eight ranks of 109,000 events each, compressed; one file of 1.09 million events, 284 MB; and one twice as large,
for growth. The traces are made here, the same ones each time. Each way reads in a process of its own; the ways take
turns. Times exclude imports; memory is the peak of the largest process. HTA needs a Python in which it is installed.
With --tracelens, both write their reports on the given traces instead: TraceLens its tables, we a page.
"""

import argparse
import gzip
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bars import (
    TRACE_FASTER_ONE,
    TRACE_FASTER_RANKS,
    TRACE_GROWTH,
    TRACE_MEMORY,
    TRACE_OVER_FLOOR,
    TRACELENS_FASTER,
    TRACELENS_MEMORY,
)

ROOT = Path(__file__).resolve().parents[1]
EVENTS_A_RANK = 109_000

KERNELS = (
    "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
    "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float, float, at::native::"
    "binary_internal::MulFunctor<float> >, at::detail::Array<char*, 3> >(int, at::native::BinaryFunctor<float, float, "
    "float, at::native::binary_internal::MulFunctor<float> >, at::detail::Array<char*, 3>)",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t<float, "
    "at::native::sum_functor<float, float, float>::operator()(at::TensorIterator&)::{lambda(float, float)#1}> > >",
    "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1, true>(cudnnTensorStruct, float const*)",
)
COLLECTIVE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def make(path, events, rank):
    """Write a training loop's trace of `events` events: groups of four operators, a launch, its kernel and two arrows.

    Times are as in torch 2.4 and later: microseconds with three decimals, relative to a time in the file's head.
    """
    with gzip.open(path, "wt", compresslevel=1) if path.suffix == ".gz" else path.open("w") as file:
        about = {
            "schemaVersion": 1,
            "baseTimeNanoseconds": 1790857026000000000,
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 8},
        }
        file.write(json.dumps(about)[:-1] + ', "traceEvents": [\n')
        written = number = 0
        while written < events:
            lines = [json.dumps(event) for event in _work(number)]
            file.write(("" if number == 0 else ",\n") + ",\n".join(lines))
            written += len(lines)
            number += 1
        file.write('\n], "traceName": "made"}')
    return path


WORK_A_STEP = 1400


def _work(number):
    def at(offset):
        return round(4_482_772_953_797.926 + 60 * number + offset, 3)

    step, place = divmod(number, WORK_A_STEP)
    of = 1_000_000 + number  # HTA would take numbers that begin at 0 for short ones
    host, call = {"pid": 4515, "tid": 4515}, {"External id": of, "correlation": of}
    name = COLLECTIVE if number % 50 == 0 else KERNELS[number % len(KERNELS)]
    stream = 20 if name is COLLECTIVE else 7
    inside = {"External id": number, "Ev Idx": number, "Fwd thread id": 0, "Sequence number": number}
    if place == 0:
        span = {"ts": at(0), "dur": 60.0 * WORK_A_STEP}
        yield {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", **host, **span, "args": {}}
    for depth, operator in enumerate(("aten::linear", "aten::addmm", "aten::mul", "aten::empty")):
        span = {"ts": at(depth), "dur": 40.218 - 2 * depth}
        yield {"ph": "X", "cat": "cpu_op", "name": operator, **host, **span, "args": inside}
    yield {
        "ph": "X",
        "cat": "cuda_runtime",
        "name": "cudaLaunchKernel",
        **host,
        "ts": at(5),
        "dur": 6.147,
        "args": {"cbid": 211, **call},
    }
    about = {"device": 0, "context": 1, "stream": stream, **call, "registers per thread": 48, "shared memory": 0}
    shape = {"blocks per SM": 4.5, "warps per SM": 36.2, "grid": [864, 1, 1], "block": [256, 1, 1]}
    yield {
        "ph": "X",
        "cat": "kernel",
        "name": name,
        "pid": 0,
        "tid": stream,
        "ts": at(20),
        "dur": 35.104 + number % 40,
        "args": {**about, **shape, "est. achieved occupancy %": 57},
    }
    arrow = {"id": number, "cat": "ac2g", "name": "ac2g"}
    yield {"ph": "s", **arrow, **host, "ts": at(5)}
    yield {"ph": "f", **arrow, "pid": 0, "tid": stream, "ts": at(20), "bp": "e"}


def ours(paths):
    """Return a function that does our work: all analyses, all rules, and the page."""
    sys.path.insert(0, str(ROOT))
    from advisor.publish import report_of
    from advisor.report.render import html
    from advisor.runs.traces import load as load_traces
    from advisor.settings.own_rules import load

    rules = load()
    return lambda: html.render(report_of(load_traces(paths), rules=rules))


def floor(paths):
    """Return a function that only reads the file into typed events and computes four breakdown times in NumPy."""
    import msgspec
    import numpy as np

    class Args(msgspec.Struct, gc=False):
        correlation: int = -1
        stream: int = -1

    class Event(msgspec.Struct, gc=False):
        ph: str
        name: str = ""
        cat: str = ""
        ts: float = 0.0
        dur: float = 0.0
        args: Args | None = None

    class Trace(msgspec.Struct):
        traceEvents: list[Event]

    def covered(start, end):
        order = np.argsort(start)
        start, reach = start[order], np.maximum.accumulate(end[order])
        return (reach - np.maximum(start, np.concatenate((start[:1], reach[:-1]))).clip(max=reach)).sum()

    def read(path):
        data = path.read_bytes()
        found = msgspec.json.decode(gzip.decompress(data) if path.suffix == ".gz" else data, type=Trace).traceEvents
        kernels = [event for event in found if event.cat == "kernel"]
        start = np.array([event.ts for event in kernels])
        end = start + np.array([event.dur for event in kernels])
        sent = np.array([event.name.startswith("nccl") for event in kernels])
        names = {}
        number = np.array([names.setdefault(event.name, len(names)) for event in kernels])
        launches = {e.args.correlation: e.ts for e in found if e.cat == "cuda_runtime" and e.args is not None}
        asked = np.array([launches.get(event.args.correlation, np.nan) for event in kernels])
        queue = np.concatenate((asked, start)).argsort()
        return (
            covered(start, end),
            covered(start[sent], end[sent]) + covered(start[~sent], end[~sent]),
            np.bincount(number, end - start),
            np.cumsum(np.repeat((1, -1), len(kernels))[queue]).max(),
        )

    return lambda: [read(path) for path in paths]


def hta(paths):
    from hta.trace_analysis import TraceAnalysis

    def read():
        analysis = TraceAnalysis(trace_files={rank: str(path) for rank, path in enumerate(paths)})
        analysis.get_temporal_breakdown(visualize=False)
        analysis.get_comm_comp_overlap(visualize=False)
        analysis.get_gpu_kernel_breakdown(visualize=False)
        analysis.get_queue_length_summary(list(range(len(paths))))

    return read


def tracelens(paths):
    from TraceLens.Reporting.generate_perf_report_pytorch import generate_perf_report_pytorch

    def write():
        with tempfile.TemporaryDirectory() as folder:
            for path in paths:
                generate_perf_report_pytorch(str(path), output_csvs_dir=folder)

    return write


def read(way, paths):
    """Return the seconds, CPU seconds and peak bytes that a way takes."""
    work = {"ours": ours, "floor": floor, "hta": hta, "tracelens": tracelens}[way](paths)
    began, cpu = time.perf_counter(), time.process_time()
    work()
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return {"seconds": seconds, "cpu": cpu, "memory": peak * 1024}


def measure(python, way, paths):
    environment = {**os.environ, "PYTHONPATH": os.environ.get("PYTHONPATH", "") if way == "tracelens" else ""}
    line = [python, __file__, "--read", way, *map(str, paths)]
    done = subprocess.run(line, capture_output=True, check=True, env=environment, stdin=subprocess.DEVNULL)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument(
        "--events", type=int, default=EVENTS_A_RANK, help="events per rank; the single file has ten times as many"
    )
    options.add_argument("--hta", default=os.environ.get("PROFILE_TRAIN_HTA"), help="a Python that has HTA")
    options.add_argument("--tracelens", nargs="+", metavar=("PYTHON", "TRACE"), help="a Python that has TraceLens")
    options.add_argument("--json", type=Path)
    options.add_argument("--read", nargs="+", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.read:
        way, *paths = given.read
        print(json.dumps(read(way, [Path(path) for path in paths])))
        return
    if given.tracelens:
        against_tracelens(*given.tracelens, rounds=given.rounds)
        return
    ways = {"ours": sys.executable, "floor": sys.executable, **({"hta": given.hta} if given.hta else {})}
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        cases = {
            "8 ranks": [make(place / f"rank{n}.json.gz", given.events, n) for n in range(8)],
            "one file": [make(place / "one.json", 10 * given.events, 0)],
            "twice as large": [make(place / "two.json", 20 * given.events, 0)],
        }
        for case, paths in cases.items():
            runs = {way: [] for way in ways if way != "hta" or case != "twice as large"}
            for _ in range(given.rounds):
                for way in runs:
                    runs[way].append(measure(ways[way], way, paths))
            results[case] = {
                way: {key: statistics.median(run[key] for run in each) for key in ("seconds", "cpu", "memory")}
                for way, each in runs.items()
            }
            size = sum(path.stat().st_size for path in paths)
            print(f"{case} ({size / 1e6:.0f} MB)")
            for way, each in results[case].items():
                print(f"  {way:6} {each['seconds']:7.2f} s {each['memory'] / 1e6:7.0f} MB")
    for line in verdicts(results):
        print(line)
    if given.json:
        given.json.write_text(json.dumps(results, indent=2))


def against_tracelens(python, *traces, rounds):
    """Print the figures of each trace, and whether the bars are met; the ways take turns."""
    for path in traces:
        runs = {"ours": [], "tracelens": []}
        for _ in range(rounds):
            runs["ours"].append(measure(sys.executable, "ours", [path]))
            runs["tracelens"].append(measure(python, "tracelens", [path]))
        one = {way: {key: statistics.median(run[key] for run in each) for key in each[0]} for way, each in runs.items()}
        print(Path(path).name, *(f"{way}: {each}" for way, each in one.items()))
        for key in ("seconds", "cpu"):
            faster = one["tracelens"][key] / one["ours"][key]
            print(_verdict(f"{key}: faster than TraceLens", faster, TRACELENS_FASTER, True))
        memory = one["ours"]["memory"] / one["tracelens"]["memory"]
        print(_verdict("memory over TraceLens's", memory, TRACELENS_MEMORY, False))


def verdicts(results):
    """Yield each bar, and whether it is met."""
    for case, faster in (("8 ranks", TRACE_FASTER_RANKS), ("one file", TRACE_FASTER_ONE)):
        one = results[case]
        yield _verdict(
            f"{case}: times the floor", one["ours"]["seconds"] / one["floor"]["seconds"], TRACE_OVER_FLOOR, False
        )
        if "hta" in one:
            yield _verdict(f"{case}: faster than HTA", one["hta"]["seconds"] / one["ours"]["seconds"], faster, True)
            yield _verdict(
                f"{case}: memory over HTA's", one["ours"]["memory"] / one["hta"]["memory"], TRACE_MEMORY, False
            )
    growth = results["twice as large"]["ours"]["cpu"] / results["one file"]["ours"]["cpu"]
    yield _verdict("twice as large: times the CPU time", growth, TRACE_GROWTH, False)


def _verdict(what, value, bar, at_least):
    met = value >= bar if at_least else value <= bar
    return f"{'ok   ' if met else 'ABOVE' if not at_least else 'BELOW'} {what}: {value:.2f} (bar {bar})"


if __name__ == "__main__":
    main()
