"""A script that reports which torch this Python has, and whether its profiler sees GPU kernels.

    python installed.py

It prints JSON, with failures under "error", and leaves nothing behind.
"""

import json
import os
import platform
import sys
from typing import Any


def about() -> dict[str, Any]:
    """Return facts about this Python and its torch, under the field names of the doctor's `Torch`."""
    found: dict[str, Any] = {"python": platform.python_version(), "interpreter": sys.executable}
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name == "torch":
            return found
        return {**found, "error": str(error)}
    except Exception as error:
        return {**found, "error": str(error)}
    found.update(
        version=str(torch.__version__),
        cuda=torch.version.cuda,
        hip=torch.version.hip,
        threads=torch.get_num_threads(),
    )
    try:
        if torch.version.cuda or torch.version.hip:
            found.update(_gpus(torch))
    except Exception as error:
        found["error"] = str(error)
    return found


def _gpus(torch: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"architectures": list(torch.cuda.get_arch_list()), "devices": []}
    if not torch.cuda.is_available():
        try:
            torch.cuda.init()  # raises an error with the reason
        except Exception as error:
            found["error"] = str(error)
        return found
    for number in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(number)
        found["devices"].append(
            {
                "id": number,
                "name": device.name,
                "capability": [device.major, device.minor],
                "memory_total": device.total_memory,
                "architectures": found["architectures"],
            }
        )
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        ones = torch.ones(64, 64, device="cuda")
        (ones @ ones).sum().item()
    found["kernels"] = sum(1 for event in profiler.events() if "CUDA" in str(event.device_type).upper())
    return found


if __name__ == "__main__":
    # Import nothing from this folder: some of its modules have the names of other modules.
    sys.path[:] = [
        entry for entry in sys.path if os.path.realpath(entry) != os.path.dirname(os.path.realpath(__file__))
    ]
    answer = json.dumps(about())
    sys.stdout.write(f"\n{answer}\n")  # on a separate line, even if a library has printed before
