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
    facts: dict[str, Any] = {"python": platform.python_version(), "interpreter": sys.executable}
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name == "torch":
            return facts
        return {**facts, "error": str(error)}
    except Exception as error:
        return {**facts, "error": str(error)}
    facts.update(
        version=str(torch.__version__),
        cuda=torch.version.cuda,
        hip=torch.version.hip,
        threads=torch.get_num_threads(),
    )
    try:
        if torch.version.cuda or torch.version.hip:
            facts.update(_gpus(torch))
    except Exception as error:
        facts["error"] = str(error)
    return facts


def _gpus(torch: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {"architectures": list(torch.cuda.get_arch_list()), "devices": []}
    if not torch.cuda.is_available():
        try:
            torch.cuda.init()  # raises an error with the reason
        except Exception as error:
            facts["error"] = str(error)
        return facts
    for number in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(number)
        facts["devices"].append(
            {
                "id": number,
                "name": device.name,
                "capability": [device.major, device.minor],
                "memory_total": device.total_memory,
                "architectures": facts["architectures"],
            }
        )
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        ones = torch.ones(64, 64, device="cuda")
        (ones @ ones).sum().item()
    facts["kernels"] = sum(1 for event in profiler.events() if "CUDA" in str(event.device_type).upper())
    return facts


if __name__ == "__main__":
    # Import nothing from this folder: some of its modules have the names of other modules.
    sys.path[:] = [
        entry for entry in sys.path if os.path.realpath(entry) != os.path.dirname(os.path.realpath(__file__))
    ]
    answer = json.dumps(about())
    sys.stdout.write(f"\n{answer}\n")  # on a separate line, even if a library has printed before
