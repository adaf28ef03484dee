from harness import DoesNotFire, Fires, NotMeasured, given

from advisor.metrics.stack import ARCHITECTURE, CPU_BUILD, OLD_DRIVER, stack_mismatches

CASES = [
    Fires(
        "torch has no kernels for the GPU",
        given({stack_mismatches: (ARCHITECTURE,)}),
        code="get_arch_list",
        note="compute capability",
        no_gain=True,
        fault=True,
    ),
    Fires(
        "a build without CUDA, possibly on purpose",
        given({stack_mismatches: (CPU_BUILD,)}),
        code="nvidia-smi",
        then="unless you train on the CPU on purpose",
        fault=False,
    ),
    Fires("an old driver", given({stack_mismatches: (OLD_DRIVER,)}), code="update the driver", fault=False),
    DoesNotFire("all versions match", given({stack_mismatches: ()})),
    NotMeasured("no GPU was seen", given({})),
]
