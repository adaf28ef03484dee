"""Traces small enough to compute by hand, as Kineto writes them. Times are microseconds."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

KERNEL = "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>"
GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_tn"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
HTOD = "Memcpy HtoD (Pageable -> Device)"
DTOH = "Memcpy DtoH (Device -> Pageable)"
MAIN = 100


class Made:
    """Events, in the order they were added."""

    def __init__(self, **about: Any) -> None:
        self.about: dict[str, Any] = {"schemaVersion": 1, **about}
        self.events: list[dict[str, Any]] = []
        self._calls = 0

    def host(self, name: str, start: float, end: float, cat: str = "cpu_op", thread: int = MAIN, **args: Any) -> None:
        """Add a range of the host."""
        self._add(cat, name, MAIN, thread, start, end, args)

    def step(self, number: int, start: float, end: float) -> None:
        self.host(f"ProfilerStep#{number}", start, end, "user_annotation")

    def gpu(
        self,
        name: str,
        start: float,
        end: float,
        call: tuple[float, float] | None = None,
        *,
        stream: int = 7,
        cat: str = "",
        api: str = "cudaLaunchKernel",
        thread: int = MAIN,
        **args: Any,
    ) -> None:
        """Add work of the GPU, and the call that launched it."""
        self._calls += 1
        cat = cat or ("gpu_memcpy" if name.startswith("Memcpy") else "kernel")
        about = {"device": 0, "stream": stream, "correlation": self._calls, **args}
        self._add(cat, name, 0, stream, start, end, about)
        if call:
            self._add("cuda_runtime", api, MAIN, thread, *call, {"cbid": 211, "correlation": self._calls})

    def wait(self, start: float, end: float) -> None:
        self.host("cudaDeviceSynchronize", start, end, "cuda_runtime", correlation=0)

    def text(self) -> str:
        """Return the trace in the layout that Kineto writes."""
        head = json.dumps(self.about)[:-1]
        events = ",\n".join(f"  {json.dumps(event)}" for event in self.events)
        return f'{head}, "traceEvents": [\n{events}\n  ],\n  "traceName": "t.json"\n}}\n'

    def write(self, path: Path) -> Path:
        data = self.text().encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
        return path

    def _add(self, cat: str, name: str, pid: int, tid: int, start: float, end: float, args: dict[str, Any]) -> None:
        self.events.append(
            {
                "ph": "X",
                "cat": cat,
                "name": name,
                "pid": pid,
                "tid": tid,
                "ts": 1_000_000 + start,
                "dur": end - start,
                "args": args,
            }
        )


def two_ranks(folder: Path) -> list[Path]:
    """Write traces of three steps of 100 us; rank 1 reaches each all-reduce 10 us later than rank 0."""
    paths = []
    for rank in (0, 1):
        made = Made(distributedInfo={"backend": "nccl", "rank": rank, "world_size": 2}, deviceProperties=[GPU])
        for number in range(3):
            at = 100 * number
            made.step(number, at, at + 100)
            made.gpu(GEMM, at + 10, at + 40 + 10 * rank, (at + 1, at + 4))
            made.gpu(
                NCCL,
                at + 40 + 10 * rank,
                at + 80,
                (at + 5, at + 7),
                stream=20,
                **ALL_REDUCE,
            )
        paths.append(made.write(folder / f"trace_{rank}.json.gz"))
    return paths


ALL_REDUCE: dict[str, Any] = {
    "Collective name": "allreduce",
    "Group size": 2,
    "Process Group Name": "0",
    "Process Group Description": "default_pg",
    "In msg nelems": 1000,
    "Out msg nelems": 1000,
    "dtype": "Float",
}
GPU = {"id": 0, "name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 85_000_000_000, "computeMajor": 8, "computeMinor": 0}
