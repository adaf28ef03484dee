import pytest
from profiles import metrics, rank

from advisor.metrics.base import Missing
from advisor.metrics.stack import stack_mismatches
from profiler.schema import DeviceFact, Gpu, ModelFact

ON_CPU = (ModelFact(id=1, devices={"cpu": 8}),)


def built_for(*architectures, capability=(8, 6)):
    fact = DeviceFact(id=0, name="GPU", capability=capability, architectures=architectures)
    return metrics(rank(devices=(fact,), process={"torch": "2.9.0", "cuda": "12.8"}))[stack_mismatches]


def on_cpu(driver="12.8", **process):
    gpu = Gpu(index=0, uuid="GPU-0", name="A100", memory_total=1, cuda_driver=driver)
    return metrics(rank(models=ON_CPU, process={"torch": "2.9.0", **process}), gpus=(gpu,))[stack_mismatches]


@pytest.mark.parametrize(
    ("architectures", "capability"),
    [
        (("sm_80",), (8, 6)),  # the same major version
        (("sm_75", "compute_75"), (9, 0)),  # compiled when it is loaded
        (("sm_90a",), (9, 0)),
        (("sm_100f",), (10, 3)),
        (("sm_120",), (12, 0)),
        (("gfx90a",), (9, 0)),  # an AMD GPU
        ((), (8, 0)),  # not known
        (("sm_50",), None),
    ],
)
def test_build_with_code_for_gpu_is_ok(architectures, capability):
    assert built_for(*architectures, capability=capability) == ()


@pytest.mark.parametrize(
    ("architectures", "capability"),
    [(("sm_70", "sm_80"), (12, 0)), (("sm_86",), (8, 0)), (("sm_90a",), (10, 0)), (("sm_100f",), (12, 0))],
)
def test_build_without_code_for_gpu_is_mismatch(architectures, capability):
    assert built_for(*architectures, capability=capability) == ("architecture",)


def test_a_build_without_cuda():
    assert on_cpu(cuda=None) == ("cpu_build",)
    assert on_cpu(cuda=None, hip="6.2") == ()


def test_a_driver_older_than_cuda():
    assert on_cpu(cuda="13.0") == ("old_driver",)
    assert on_cpu(cuda="12.9", driver="12.4") == (), "CUDA serves later minor versions"
    assert on_cpu(cuda="12.8") == (), "on the CPU though it could use the GPU: on purpose"


def test_stack_mismatches_is_missing_without_gpu():
    with pytest.raises(Missing):
        metrics(rank(models=ON_CPU, process={"torch": "2.9.0"}))[stack_mismatches]
