"""Whether torch, its CUDA version, the driver and the GPU are compatible."""

import re

from advisor.metrics.base import Metrics, metric
from advisor.metrics.settings import no_gpu, on_cpu, primary_rank
from profiler.schema import DeviceFact

ARCHITECTURE, CPU_BUILD, OLD_DRIVER = "architecture", "cpu_build", "old_driver"

_CUDA = re.compile(r"(?P<kind>sm|compute)_(?P<major>\d+)(?P<minor>\d)(?P<only>[af]?)")


@metric(None, "mismatches between torch, driver and GPU")
def stack_mismatches(m: Metrics) -> tuple[str, ...]:
    """The reasons why torch cannot use a GPU of this machine.

    "architecture": this torch has no code for the GPU's compute capability. "cpu_build": torch was built without CUDA,
    though NVML sees GPUs. "old_driver": torch was built for a newer major version of CUDA than the driver supports. The
    last two count only if the program trains on the CPU.
    """
    rank, gpus = m[primary_rank], m.profile.gpus
    if not rank.devices and not gpus:
        raise no_gpu(m, "The GPU model was not recorded")
    process = rank.process
    unsupported_devices = [fact for fact in rank.devices if not has_code_for(fact)]
    drivers = [major(gpu.cuda_driver) for gpu in gpus if gpu.cuda_driver]
    cuda_major = major(process.cuda)
    idle = bool(gpus) and m[on_cpu]
    mismatches = {
        ARCHITECTURE: bool(unsupported_devices),
        CPU_BUILD: idle and process.torch is not None and process.cuda is None and process.hip is None,
        OLD_DRIVER: idle
        and cuda_major is not None
        and any(driver is not None and driver < cuda_major for driver in drivers),
    }
    return tuple(name for name, is_so in mismatches.items() if is_so)


def has_code_for(fact: DeviceFact) -> bool:
    """Return whether torch has code for the GPU; True if unknown (an AMD GPU, or no list from torch).

    Code for sm_XY runs on capability X.Y and later ones of the same X; code for compute_XY is translated for any later
    capability. With the suffix "a" it runs on that capability alone, with "f" on its family, which is the same X (CUDA
    programming guide).
    """
    codes = [code for name in fact.architectures if (code := _CUDA.fullmatch(name))]
    if not codes or fact.capability is None:
        return True
    return any(_runs(code, fact.capability) for code in codes)


def _runs(code: re.Match[str], capability: tuple[int, int]) -> bool:
    target = (int(code["major"]), int(code["minor"]))
    if code["only"] == "a":
        return target == capability
    if code["kind"] == "sm" or code["only"] == "f":
        return target[0] == capability[0] and target[1] <= capability[1]
    return target <= capability


def major(version: str | None) -> int | None:
    """Return the major version: 12 for "12.4"; None if it is not a number."""
    first = (version or "").partition(".")[0]
    return int(first) if first.isdecimal() else None
