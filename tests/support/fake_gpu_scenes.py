"""Training runs of known durations, each recorded once for all tests and all of xdist's workers."""

from __future__ import annotations

import fcntl
import json
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fake_gpu import OnGpu, make

from profiler.schema import Step

PROGRAM = Path(__file__).parents[1] / "fake_gpu/programs/scene.py"
STEPS = 60
SETTLED = 15
"""Number of steps after which the start-up has no effect any more."""


@dataclass(frozen=True)
class Scene:
    """What a training run does, and on which GPUs."""

    given: dict[str, Any]
    devices: str = "H100:80"
    ranks: int = 1
    how: dict[str, Any] = field(default_factory=dict)
    """Arguments of `fake_gpu.make`."""


USUAL = {"forward": 0.020, "backward": 0.040, "optimizer": 0.010}
"""Seconds of GPU work: the host stays ahead of it even on a busy machine."""

TWO = "H100:80,H100:80"

SCENES = {
    "plain": Scene(USUAL),
    "other on a slow GPU": Scene({**USUAL, "other": 0.015}, devices="T4:16"),
    "hidden wait": Scene({**USUAL, "data": 0.030}),
    "visible wait": Scene({**USUAL, "data": 0.120}),
    "sync": Scene({**USUAL, "optimizer": 0.030, "item": True, "late": 0.030}),
    "slow host": Scene({**USUAL, "host": 0.100}),
    "memory and side stream": Scene({**USUAL, "hold": 6144, "side": True}, devices="H100:20"),
    "accumulation on the second GPU": Scene(
        {**USUAL, "accumulate": 2, "device": "cuda:1", "switch": True}, devices=TWO
    ),
    # Bytes, pinned and non_blocking of each copy: 25 GB/s from pinned memory, 6 GB/s from pageable memory.
    "copies": Scene(
        {
            **USUAL,
            "copies": [
                [500_000_000, True, True],
                [250_000_000, True, False],
                [120_000_000, False, True],
                [60_000_000, False, False],
            ],
            "late": 0.030,
            "prefetch": 250_000_000,
        }
    ),
    "ranks": Scene(USUAL, devices=TWO, ranks=2),
    "straggler": Scene({**USUAL, "second rank": {"forward": 0.050}}, devices=TWO, ranks=2),
    "slow rank": Scene(
        {**USUAL, "second rank": {name: 1.2 * seconds for name, seconds in USUAL.items()}}, devices=TWO, ranks=2
    ),
    # Two reductions of 30 ms on their own stream, behind 20 + 20 ms of backward pass: 20 ms are exposed.
    "overlap": Scene(
        {"forward": 0.020, "between": 0.020, "backward": 0.020, "optimizer": 0.010},
        devices=TWO,
        ranks=2,
        how={"kernels": {"AllReduce": 0.030}},
    ),
}


def record(name: str, shared: Path) -> OnGpu:
    """Return a scene's recording; the first call makes it in `shared`."""
    scene = SCENES[name]
    place = shared / name.replace(" ", "-")
    place.parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{place}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = Path(f"{place}.json")
        if not done.exists():
            gpu = make(place, scene.devices, **scene.how)
            words = [PROGRAM, json.dumps({**scene.given, "steps": STEPS})]
            if scene.ranks > 1:
                with socket.create_server(("127.0.0.1", 0)) as free:  # scenes are recorded in parallel
                    port = free.getsockname()[1]
                launcher = ["-m", "torch.distributed.run", "--master-port", port, "--nproc-per-node", scene.ranks]
                words = [*launcher, *words]
            ran = gpu.record(*words, options=("--budget", "0.5"))
            done.write_text(
                json.dumps([ran.status, ran.out.decode(), ran.err.decode(), str(ran.folder), str(ran.truth)])
            )
    status, out, err, folder, truth = json.loads(done.read_text())
    return OnGpu(status, out.encode(), err.encode(), Path(folder), truth=Path(truth))


def steps(run: OnGpu, pid: int) -> list[Step]:
    """Return a rank's steps, each at its index."""
    found = sorted((step for step in run.steps if step.pid == pid), key=lambda step: step.index)
    assert [step.index for step in found] == list(range(len(found)))
    return found
