"""Profiler windows on a GPU: they survive, and their rows agree with what the stand-in simulated."""

import json

import pytest

TRAIN = """
import torch
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __len__(self): return 400
    def __getitem__(self, i): return torch.zeros(2048, 1024)

model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(8)]).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for batch in DataLoader(Data(), batch_size=None, pin_memory=True):
    batch = batch.to("cuda")  # blocks: the host asks for nothing until the copy is done
    model(batch).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
torch.cuda.synchronize()
"""


def test_windows_are_recorded_and_name_the_blocking_call(fake_gpu, script):
    ran = fake_gpu(speed=0.05).record(script(TRAIN), options=("--budget", "0.5"))

    assert ran.status == 0, ran.err.decode()
    assert "window" not in ran.problems
    windows = [window for window in ran.tables.windows if window.device == "cuda"]
    assert windows
    for path in (ran.folder / "windows").iterdir():
        header = json.loads(path.read_text())["deviceProperties"]
        assert "H100" in header[0]["name"]
    for window in windows:
        parts = ("busy", "h2d", "idle_data", "idle_sync", "idle_launch", "idle_other")
        assert sum(getattr(window, part) for part in parts) == pytest.approx(window.duration)
        assert 0 < window.host_launch < window.duration
    # Between two steps the GPU waits for the blocking copy, and not for an .item().
    assert {sync.cause for sync in ran.tables.syncs} == {"copy_in"}
    (shown,) = ran.result["traces"]
    assert sum(shown["time"].values()) == pytest.approx(1)
    assert shown["queue"]
    assert shown["launches"]
    assert shown["critical_path_s"]
    products = [op.seconds for op in ran.ops if op.kind == "kernel" and "gemm" in op.name]
    of_windows = [kernel for kernel in ran.tables.kernels if kernel.kind == "matmul"]
    mean = sum(kernel.total for kernel in of_windows) / sum(kernel.calls for kernel in of_windows)
    assert mean == pytest.approx(sum(products) / len(products), rel=0.05)


CLASSES = """
import torch
from torch import nn
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.norm = nn.Embedding(512, 256), nn.LayerNorm(256)
        self.qkv, self.out, self.head = nn.Linear(256, 768), nn.Linear(256, 256), nn.Linear(256, 512)

    def forward(self, tokens):
        x = self.table(tokens)
        q, k, v = self.qkv(self.norm(x)).view(8, 64, 3, 4, 64).permute(2, 0, 3, 1, 4)
        with nn.attention.sdpa_kernel(nn.attention.SDPBackend.FLASH_ATTENTION):
            mixed = scaled_dot_product_attention(q, k, v)
        return self.head(gelu(x + self.out(mixed.transpose(1, 2).reshape(8, 64, 256))))

model = Model().cuda()
optimizer = torch.optim.AdamW(model.parameters())
tokens = torch.zeros(8, 64, dtype=torch.long, device="cuda")
for _ in range(60):
    with torch.autocast("cuda", torch.bfloat16):
        loss = cross_entropy(model(tokens).flatten(0, 1).float(), tokens.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    loss.item()
"""
KINDS = {
    "matmul": {"nvjet": 2e-3},
    "attention": {"flash_": 3e-3},
    "normalization": {"layer_norm": 3e-3, "GammaBeta": 2e-3},
    "loss": {"softmax_warp": 3e-3, "nll_loss": 1e-3},
    "elementwise": {"GeluCUDA": 3e-3, "GeluBackward": 4e-3, "CUDAFunctor_add": 1e-3, "FillFunctor": 5e-4},
    "copy": {"copy_kernel": 3e-4, "gather": 1e-3, "CatArray": 2e-3, "embedding_backward": 2e-3},
    "reduction": {"13reduce_kernel": 1e-3},
    "optimizer": {"multi_tensor": 1e-3},
}
"""Seconds per call, by kind of kernel and a part of its name."""
MEMORY_BOUND = ("elementwise", "normalization", "loss", "reduction", "copy")


def test_kernel_kind_shares_match_simulated_times(fake_gpu, script):
    kernels = {part: seconds for parts in KINDS.values() for part, seconds in parts.items()}
    ran = fake_gpu(kernels=kernels).record(script(CLASSES), options=("--budget", "0.5"))
    assert ran.status == 0, ran.err.decode()
    known = dict.fromkeys(KINDS, 0.0)
    for op in ran.ops:
        if op.kind == "kernel":
            (kind,) = {kind for kind, parts in KINDS.items() if any(part in op.name for part in parts)}
            known[kind] += op.seconds
    measured = dict.fromkeys(KINDS, 0.0)
    for kernel in ran.tables.kernels:
        measured[kernel.kind] += kernel.total
    for kind in KINDS:
        assert measured[kind] / sum(measured.values()) == pytest.approx(known[kind] / sum(known.values()), rel=0.03), (
            kind
        )
    share = {kind: seconds / sum(known.values()) for kind, seconds in known.items()}
    metrics = {name: metric.get("value") for name, metric in ran.result["metrics"].items()}
    assert metrics["matmul_share"] == pytest.approx(share["matmul"], rel=0.03)
    assert metrics["bf16_gemm_share"] == pytest.approx(share["matmul"], rel=0.03)
    assert metrics["cross_entropy_share"] == pytest.approx(share["loss"], rel=0.03)
    assert metrics["optim_share"] == pytest.approx(share["optimizer"], rel=0.03)
    lookups = sum(op.seconds for op in ran.ops if op.kind == "kernel" and "embedding" in op.name) / sum(known.values())
    memory_bound = sum(share[kind] for kind in MEMORY_BOUND) - lookups
    assert metrics["membound_share"] == pytest.approx(memory_bound, rel=0.03)
    assert metrics["bf16_gemm_us"] == pytest.approx(2000, rel=0.03)
