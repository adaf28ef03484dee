"""The program's Python, its torch, the driver: each mismatch is reported, with what to do about it."""

import stat
import sys

import pytest

from advisor.doctor import gpus, stack
from advisor.doctor.finding import CheckState
from advisor.doctor.stack import Torch
from profiler.schema import NO_DRIVER, DeviceFact, Gpu, GpuSample, Problem

H100 = Gpu(
    index=0,
    uuid="GPU-1",
    name="H100",
    capability=(9, 0),
    memory_total=80 << 30,
    driver="570.1",
    cuda_driver="12.8",
    gpm=True,
)
CUDA = Torch(
    "/env/bin/python",
    "3.12.1",
    "2.8.0+cu128",
    cuda="12.8",
    architectures=("sm_80", "sm_90"),
    devices=(DeviceFact(id=0, name="H100", capability=(9, 0), architectures=("sm_80", "sm_90")),),
    kernels=2,
)
SAMPLE = GpuSample(time=0, gpu=0, utilization=0.0, memory_used=1, power=70.0, sm_clock=300.0)


def changed(torch=CUDA, **fields):
    return Torch(**{**{name: getattr(torch, name) for name in Torch.__slots__}, **fields})


def _problem(message, code=""):
    return Problem(time=0, source="nvml", message=message, code=code)


def named(findings, name):
    (found,) = [each for each in findings if each.name == name]
    return found


def test_healthy_machine_passes_all_checks():
    found = [*stack.findings(CUDA, (H100,)), *gpus.findings((H100,), (SAMPLE,), (), CUDA)]

    assert {each.state for each in found} == {CheckState.OK}
    assert "sm_80 sm_90" in named(found, "torch").said
    assert "torch sees H100" in named(found, "torch and GPU").said


@pytest.mark.parametrize(
    ("torch", "gpu", "said"),
    [
        (changed(cuda=None, devices=()), H100, "CPU-only; H100 is not used"),
        (changed(cuda="13.0", devices=()), H100, "driver supports at most 12.8"),
        (changed(devices=(), error="no permission\nmore"), H100, "cannot use H100: no permission"),
        (
            changed(devices=(DeviceFact(id=0, name="B200", capability=(10, 0), architectures=("sm_90",)),)),
            H100,
            "no code for B200 (compute capability 10.0)",
        ),
    ],
)
def test_torch_incompatible_with_gpu_needs_fix(torch, gpu, said):
    found = named(stack.findings(torch, (gpu,)), "torch and GPU")

    assert found.state is CheckState.FIX
    assert said in found.said
    assert found.remedy


def test_machine_without_gpu_is_ok():
    cpu = changed(cuda=None, devices=(), architectures=(), kernels=None)
    none = (_problem("No driver. That is normal.", NO_DRIVER),)

    assert named(stack.findings(cpu, ()), "torch and GPU").state is CheckState.OK
    assert named(gpus.findings((), (), none, cpu), "driver").state is CheckState.OK
    assert named(gpus.findings((), (), none, changed(devices=())), "driver").state is CheckState.WARNING


def test_failing_driver_needs_fix():
    remedy = "The driver was updated: restart."
    failed = (_problem(f"NVML failed (mismatch), so no GPU was measured. {remedy}", "driver-fails"),)

    found = named(gpus.findings((), (), failed, CUDA), "driver")

    assert (found.state, found.remedy) == (CheckState.FIX, remedy)


def test_readings_refused_by_gpu_are_warnings():
    refusing = Gpu(index=0, uuid="GPU-1", name="H100", capability=(9, 0), memory_total=1, gpm=False)
    silent = GpuSample(time=0, gpu=0, utilization=0.0, memory_used=1, sm_clock=300.0)
    found = list(gpus.findings((refusing,), (silent,), (_problem("GPU 0 refused power. Run as root."),), CUDA))

    assert named(found, "NVML").state is CheckState.WARNING
    assert "power" in named(found, "GPU samples").said
    assert "NVreg_RestrictProfilingToAdminUsers=0" in named(found, "counters (GPM)").remedy


def test_missing_counters_of_older_gpu_are_ok():
    ampere = Gpu(index=0, uuid="GPU-1", name="A100", capability=(8, 0), memory_total=1, gpm=False)

    assert named(gpus.findings((ampere,), (SAMPLE,), (), CUDA), "counters (GPM)").state is CheckState.OK


def test_counters_are_reported_for_each_gpu():
    old = Gpu(index=0, uuid="GPU-1", name="A100", capability=(8, 0), memory_total=1, gpm=False)
    new = Gpu(index=1, uuid="GPU-2", name="H100", capability=(9, 0), memory_total=1, gpm=True)
    found = named(gpus.findings((old, new), (SAMPLE,), (), CUDA), "counters (GPM)")

    assert found.state is CheckState.OK
    assert "GPU 1" in found.said


def test_unsampled_amd_gpu_is_a_warning():
    none = (_problem("No driver. That is normal.", NO_DRIVER),)

    assert named(gpus.findings((), (), none, changed(cuda=None, hip="6.4")), "driver").state is CheckState.WARNING


def test_a_profiler_that_sees_no_kernel_is_a_warning():
    assert named(stack.findings(changed(kernels=0), (H100,)), "kernels (CUPTI)").state is CheckState.WARNING


@pytest.mark.process
def test_interpreter_is_queried_in_separate_process():
    torch = pytest.importorskip("torch")

    asked = stack.ask(sys.executable)

    assert (asked.version, asked.cuda) == (str(torch.__version__), torch.version.cuda)
    assert named(stack.findings(asked, ()), "python").state is CheckState.OK


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('echo noise; echo \'{"interpreter": "python", "python": "3.12.0"}\'', "has no torch"),
        (
            'echo \'{"interpreter": "python", "python": "3.12.0", "error": "libcudart is missing"}\'',
            "libcudart is missing",
        ),
        ("echo cannot load >&2; exit 3", "ended with status 3: cannot load"),
        ("echo '[1]'", "ended with status 0: [1]"),
    ],
)
@pytest.mark.process
def test_bad_answers_of_interpreter_are_reported(tmp_path, text, said):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{text}\n")
    python.chmod(python.stat().st_mode | stat.S_IXUSR)

    found = list(stack.findings(stack.ask(str(python)), ()))

    assert found[-1].state is CheckState.FIX
    assert said in found[-1].said


@pytest.mark.process
def test_missing_interpreter_is_reported():
    (found,) = stack.findings(stack.ask("/nowhere/python"), ())

    assert found.state is CheckState.FIX
    assert "/nowhere/python" in found.said
