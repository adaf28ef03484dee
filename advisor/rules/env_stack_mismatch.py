"""PyTorch, the driver and the GPU are incompatible.

A torch build contains code for certain compute capabilities, and is built for one version of CUDA or without CUDA. If
it has no code for a GPU, its kernels cannot run there. If the driver is too old for that CUDA version, or torch was
built without CUDA, the program trains on the CPU and the GPU stays idle.

Wrong when: the program trains on the CPU on purpose, or the GPU is reserved for another user.

Source: NVIDIA: CUDA Compatibility, https://docs.nvidia.com/deploy/cuda-compatibility/
Source: PyTorch: Start Locally, https://pytorch.org/get-started/locally/
"""

from advisor.metrics import Metrics, stack
from advisor.rules.base import Advice, Area, Confidence, Evidence, Measurement, Rule, bash

RULE = Rule("Install a torch that fits the GPU", Area.VALIDITY, Confidence.HEURISTIC, difficulty=2)

FAULTS = {
    stack.ARCHITECTURE: (
        "this torch has no code for the GPU's compute capability",
        'python -c "import torch; print(torch.__version__, torch.cuda.get_arch_list())"\n'
        "# install the build that https://pytorch.org/get-started/locally/ lists for the GPU\n",
    ),
    stack.CPU_BUILD: (
        "this torch was built without CUDA, though the machine has a GPU",
        "nvidia-smi  # shows the newest CUDA version that the driver supports\n"
        "# install the build for it: https://pytorch.org/get-started/locally/\n",
    ),
    stack.OLD_DRIVER: (
        "the driver is older than the CUDA of this torch",
        "nvidia-smi  # shows the newest CUDA version that the driver supports\n"
        "# update the driver, or install a torch built for that CUDA: "
        "https://pytorch.org/get-started/locally/\n",
    ),
}
"""What is wrong, and the commands that show and fix it."""


def when(m: Metrics) -> Evidence | None:
    """If torch has no code for the GPU, or the machine has a GPU but the program trains on the CPU because torch was
    built without CUDA or for a newer driver,
    """
    mismatches = m[stack.stack_mismatches]
    if not mismatches:
        return None
    return Evidence(
        (Measurement(stack.stack_mismatches, len(mismatches), 0, ">"),),
        "; ".join(FAULTS[mismatch][0] for mismatch in mismatches),
    )


def then(m: Metrics, found: Evidence) -> Advice:
    """then install a torch build that fits the driver and the GPU."""
    mismatches = m[stack.stack_mismatches]
    uses_gpu = stack.ARCHITECTURE in mismatches
    condition = "" if uses_gpu else ", unless you train on the CPU on purpose"
    return Advice(
        then=f"Install a torch and a driver that fit the GPU{condition}: {found.note}. Then record again.",
        changes=tuple(bash(FAULTS[mismatch][1]) for mismatch in mismatches),
        basis="No prediction: only a new recording can show how much faster the GPU is.",
        risk="Low: another build of torch may round differently. Try it in a separate environment.",
        fault=uses_gpu,
    )
