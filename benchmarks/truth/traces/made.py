"""Write the trace of a training loop in Kineto's format, from a small simulation of a host and a GPU.

The host launches one piece of work after the other; each waits for its stream. The cause of each gap on the GPU is thus
known, as in a real program.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MAIN, AUTOGRAD = 100, 101
COMPUTE, COPIES, NCCL = 7, 17, 20

SGEMM = "ampere_sgemm_128x64_tn"
TF32_GEMM = "cutlass_80_tensorop_s1688gemm_128x128_32x3_tn_align4"
BF16_GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
FLASH = (
    "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, cutlass::bfloat16_t>>"
)
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>>"
NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>"
SOFTMAX = "void (anonymous namespace)::cunn_SoftMaxForward<4, c10::BFloat16, float, c10::BFloat16>"
LOG_SOFTMAX = (
    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float, LogSoftMaxForwardEpilogue>"
)
NLL_LOSS = "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>"
DGEMM = "void cutlass::Kernel2<cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1>"
EFFICIENT = (
    "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t>::Params)"
)
STRIDED = "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<direct_copy_kernel_cuda>>"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
ALL_GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
REDUCE = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float>, 4>>"
FOREACH = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::TensorListMetadata<2>>"

GPUS = {
    "A100": {"name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 85_000_000_000, "computeMajor": 8, "computeMinor": 0},
    "H100": {"name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85_000_000_000, "computeMajor": 9, "computeMinor": 0},
    "V100": {"name": "Tesla V100-SXM2-32GB", "totalGlobalMem": 34_000_000_000, "computeMajor": 7, "computeMinor": 0},
    "B200": {"name": "NVIDIA B200", "totalGlobalMem": 192_000_000_000, "computeMajor": 10, "computeMinor": 0},
    "MI300X": {"name": "AMD Instinct MI300X", "totalGlobalMem": 206_000_000_000, "computeMajor": 9, "computeMinor": 4},
}


@dataclass
class Loop:
    """A host and the streams of its GPU; times are microseconds."""

    gpu: str = "A100"
    ranks: int = 1
    launch: float = 6.0
    """Host time per launch."""
    now: float = 0.0
    events: list[dict[str, Any]] = field(default_factory=list)
    _free: dict[int, float] = field(default_factory=dict)
    """Time at which each stream has finished all of its work."""
    _calls: int = 0
    _thread: int = MAIN

    def op(
        self,
        name: str,
        kernel: str,
        gpu: float,
        *,
        host: float = 12.0,
        shapes: list[list[int]] | None = None,
        dtype: str = "c10::BFloat16",
        stream: int = COMPUTE,
        after: int | None = None,
        values: list[str] | None = None,
    ) -> None:
        """Let the host call an operator that launches a kernel of `gpu` us; the kernel also waits for the stream
        `after`."""
        begin = self.now
        about: dict[str, Any] = {}
        if shapes is not None:
            about = {"Input Dims": shapes, "Input type": [dtype if shape else "" for shape in shapes]}
        if values is not None:
            about["Concrete Inputs"] = values
        self.now += host - self.launch
        self._launch(kernel, gpu, stream, after, {})
        self._add("cpu_op", name, MAIN, self._thread, begin, self.now, about)

    def copy(self, seconds: float, *, pinned: bool = False) -> None:
        """Copy a batch to the GPU; from pageable memory the call lasts as long as the copy."""
        begin = self.now
        kind = "Pinned" if pinned else "Pageable"
        stop = self._launch(f"Memcpy HtoD ({kind} -> Device)", seconds, COMPUTE, None, {}, "cudaMemcpyAsync")
        if not pinned:
            self._extend(stop)
        self._add("cpu_op", "aten::copy_", MAIN, MAIN, begin, self.now, {})

    def item(self) -> None:
        """Read a value back, as `.item()` does."""
        begin = self.now
        self._launch("Memcpy DtoH (Device -> Pageable)", 2.0, COMPUTE, None, {}, "cudaMemcpyAsync")
        waiting, self.now = self.now, max(self.now, self._free[COMPUTE]) + 2
        self._add("cuda_runtime", "cudaStreamSynchronize", MAIN, MAIN, waiting, self.now, {"cbid": 131})
        self._add("cpu_op", "aten::item", MAIN, MAIN, begin, self.now, {})
        self._add("cpu_op", "aten::_local_scalar_dense", MAIN, MAIN, begin + 1, self.now - 0.5, {})

    def call(self, name: str, seconds: float) -> None:
        """Call the driver for something other than a launch, after all work is done."""
        begin = self.now
        self.now = max(self.now, self._free.get(COMPUTE, 0.0)) + seconds
        self._add("cuda_runtime", name, MAIN, self._thread, begin, self.now, {"cbid": 0})

    def fetch(self, seconds: float, *, workers: bool) -> None:
        """Wait for the next batch of a DataLoader."""
        kind = "_MultiProcessingDataLoaderIter" if workers else "_SingleProcessDataLoaderIter"
        begin, self.now = self.now, self.now + seconds
        self._add("user_annotation", f"enumerate(DataLoader)#{kind}.__next__", MAIN, MAIN, begin, self.now, {})

    def work(self, seconds: float) -> None:
        """Let the host do something that the trace does not show."""
        self.now += seconds

    def hold(self, seconds: float) -> None:
        """Let the GPU begin its next kernel later by this time, as if it worked for another program."""
        self._free[COMPUTE] = self._free.get(COMPUTE, self.now) + seconds

    def inside(self, name: str, body: Callable[[], None]) -> None:
        """Let an operator call the operators of the body."""
        begin = self.now
        self.now += 1
        body()
        self.now += 1
        self._add("cpu_op", name, MAIN, self._thread, begin, self.now, {})

    def forward(self, body: Callable[[], None]) -> None:
        body()

    def backward(self, body: Callable[[], None]) -> None:
        """Run the body in the autograd thread, as one node."""
        begin, self._thread = self.now, AUTOGRAD
        body()
        self._thread = MAIN
        name = "autograd::engine::evaluate_function: AddmmBackward0"
        self._add("cpu_op", name, MAIN, AUTOGRAD, begin, self.now, {})

    def optimizer(self, body: Callable[[], None], name: str = "AdamW") -> None:
        begin = self.now
        body()
        self._add("user_annotation", f"Optimizer.step#{name}.step", MAIN, MAIN, begin, self.now, {})

    def reduce(self, gpu: float, numbers: int, *, hidden: bool) -> None:
        """All-reduce on the stream of collectives; unless `hidden`, it waits for earlier computation."""
        about = {
            "Collective name": "allreduce",
            "Group size": self.ranks,
            "Process Group Name": "0",
            "In msg nelems": numbers,
            "Out msg nelems": numbers,
            "dtype": "BFloat16",
        }
        begin = self.now
        self._launch(ALL_REDUCE, gpu, NCCL, None if hidden else COMPUTE, about)
        self._add("cpu_op", "nccl:all_reduce", MAIN, self._thread, begin, self.now, {})

    def gather(self, gpu: float, numbers: int) -> None:
        """All-gather the next weights on the stream of collectives, as soon as the last collective is done."""
        about = {
            "Collective name": "_allgather_base",
            "Group size": self.ranks,
            "Process Group Name": "0",
            "In msg nelems": numbers // self.ranks,
            "Out msg nelems": numbers,
            "dtype": "BFloat16",
        }
        begin = self.now
        self._launch(ALL_GATHER, gpu, NCCL, None, about)
        self._add("cpu_op", "c10d::_allgather_base_", MAIN, self._thread, begin, self.now, {})

    def replay(self, kernels: list[tuple[str, float]]) -> None:
        """Replay a CUDA graph: one call for all of the kernels, a microsecond apart."""
        self._calls += 1
        call, self.now = self.now, self.now + 4 * self.launch
        start = max(self.now + 5, self._free.get(COMPUTE, 0.0))
        args = {"cbid": 514, "correlation": self._calls}
        self._add("cuda_runtime", "cudaGraphLaunch", MAIN, self._thread, call, self.now, args)
        for name, gpu in kernels:
            known = {"device": 0, "stream": COMPUTE, "correlation": self._calls, "graph node id": 1}
            self._add("kernel", name, 0, COMPUTE, start, start + gpu, known)
            start += gpu + 1
        self._free[COMPUTE] = start

    def join(self) -> None:
        """Let computing wait for the collectives."""
        self._free[COMPUTE] = max(self._free.get(COMPUTE, 0.0), self._free.get(NCCL, 0.0))

    def steps(self, number: int, body: Callable[[], None]) -> None:
        """Run and mark the steps."""
        for step in range(number):
            begin = self.now
            body()
            self._add("user_annotation", f"ProfilerStep#{step + 10}", MAIN, MAIN, begin, self.now, {})

    def write(self, path: Path, rank: int = 0) -> Path:
        """Write the trace, compressed."""
        about: dict[str, Any] = {"schemaVersion": 1, "deviceProperties": [{"id": 0, **GPUS[self.gpu]}]}
        if self.ranks > 1:
            about["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": self.ranks}
        path.write_bytes(gzip.compress(json.dumps({**about, "traceEvents": self.events}).encode(), 1))
        return path

    def _launch(
        self,
        kernel: str,
        gpu: float,
        stream: int,
        after: int | None,
        args: dict[str, Any],
        api: str = "cudaLaunchKernel",
    ) -> float:
        """Queue the work and return its end."""
        self._calls += 1
        call, self.now = self.now, self.now + self.launch
        waits = [self._free.get(one, 0.0) for one in (stream, after) if one is not None]
        start = max(self.now + 2, *waits)
        self._free[stream] = start + gpu
        known = {"device": 0, "stream": stream, "correlation": self._calls, **args}
        category = "gpu_memcpy" if kernel.startswith("Memcpy") else "kernel"
        self._add("cuda_runtime", api, MAIN, self._thread, call, self.now, {"cbid": 211, "correlation": self._calls})
        self._add(category, kernel, 0, stream, start, start + gpu, known)
        return start + gpu

    def _extend(self, stop: float) -> None:
        """Let the last call return only when its work is done."""
        call = self.events[-2]
        call["dur"] = max(call["dur"], stop - (call["ts"] - 1_000_000))
        self.now = max(self.now, stop)

    def _add(self, cat: str, name: str, pid: int, tid: int, start: float, end: float, args: dict[str, Any]) -> None:
        times = {"ts": round(1_000_000 + start, 3), "dur": round(end - start, 3)}
        self.events.append({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, **times, "args": args})
