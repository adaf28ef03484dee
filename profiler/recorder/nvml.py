"""Safe access to NVML: a driver that is missing, old or restricted costs fields, never the recording."""

from collections.abc import Callable, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import pynvml

from profiler.schema import NO_DRIVER

# Errors after which the same call on the same device will not succeed later either.
FINAL = frozenset(
    (
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_NOT_FOUND,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_DEPRECATED,
    )
)

# Errors that mean the whole device is gone.
LOST = frozenset((pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED, pynvml.NVML_ERROR_UNINITIALIZED))

# Files that exist on a machine where the kernel driver is loaded, natively or under WSL.
DRIVER_TRACES = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg")


class NvmlDevice:
    """A GPU (or MIG device) whose unsupported readings are requested only once."""

    def __init__(self, handle: Any, name: str, complain: Callable[[str], None]) -> None:
        self.handle = handle
        self.name = name
        self.lost = False
        self._complain = complain
        self._refused: set[tuple[str, tuple[Any, ...]]] = set()
        self._forbidden = False

    def read(self, function: str, *arguments: int) -> Any:
        """Return the answer of pynvml's `function` for this device, or None.

        After "not supported", "no permission" and similar errors the function is not called again; after any other
        error it is.
        """
        call = (function, arguments)
        if self.lost or call in self._refused:
            return None
        try:
            return getattr(pynvml, function)(self.handle, *arguments)
        except AttributeError:  # an nvidia-ml-py older than the function
            self._refused.add(call)
        except pynvml.NVMLError as error:
            if error.value in LOST:
                self.lost = True
                self._complain(
                    f"{self.name} stopped answering ({error}), so it was measured only up to here. "
                    "Look for Xid messages in `dmesg`, and reset the GPU or restart the machine."
                )
            elif error.value in FINAL:
                self._refused.add(call)
            if error.value == pynvml.NVML_ERROR_NO_PERMISSION and not self._forbidden:
                self._forbidden = True
                self._complain(
                    f"{self.name} refused {function} and perhaps other calls, because of missing permissions; their "
                    "values are not measured. Run as a user who may read /dev/nvidia*, or ask the administrator."
                )
        return None

    def first(self, *functions: str) -> Any:
        """Return the first answer that one of `functions` gives, or None."""
        return next((answer for function in functions if (answer := self.read(function)) is not None), None)


def explain(error: pynvml.NVMLError) -> tuple[str, str]:
    """Return why NVML did not start and what to do, and a code: NO_DRIVER or "driver-fails"."""
    if error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
        if not any(Path(trace).exists() for trace in DRIVER_TRACES):
            return (
                "This machine has no NVIDIA driver, so no GPU was measured. That is normal for training on CPU; "
                "otherwise install the driver.",
                NO_DRIVER,
            )
        return (
            "The NVIDIA driver is loaded but its library libnvidia-ml.so.1 was not found, so no GPU was measured. "
            "In a container add `utility` to NVIDIA_DRIVER_CAPABILITIES; elsewhere put the library's folder into "
            "LD_LIBRARY_PATH.",
            "driver-fails",
        )
    remedies = {
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "Load it: `sudo modprobe nvidia`, then `nvidia-smi`.",
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "The driver was updated since it was loaded: restart the machine.",
        pynvml.NVML_ERROR_NO_PERMISSION: "Run as a user who may read /dev/nvidia*.",
    }
    remedy = remedies.get(error.value, "Check whether `nvidia-smi` works here, and what it reports.")
    message = f"The NVIDIA driver is installed but NVML failed ({error}), so no GPU was measured. {remedy}"
    return message, "driver-fails"


def choose(visible: str | None, gpus: Sequence[str], migs: Sequence[str]) -> list[str]:
    """Return the UUIDs that `visible` names, in its order; all of `gpus` if it is None.

    An entry is an index into `gpus`, or the beginning of exactly one UUID. As in CUDA, the first entry that names
    nothing ends the list.

    Args:
        visible: The variable's value, or None if it is not set.
        gpus: UUIDs by NVML index, "" for a GPU that cannot be opened.
        migs: UUIDs of the MIG devices.
    """
    if visible is None:
        return [uuid for uuid in gpus if uuid]
    uuids: list[str] = []
    for entry in map(str.strip, visible.split(",")):
        if entry.isdecimal():
            matches = list(gpus[int(entry) :][:1])
        else:
            matches = [uuid for uuid in (*gpus, *migs) if entry and uuid.startswith(entry)]
        if len(matches) != 1 or not matches[0]:
            break
        uuids += [uuid for uuid in matches if uuid not in uuids]
    return uuids


# Fields of GpuSample (shares), and NVML's metrics (percent).
GPM_METRICS = (
    ("sm_active", pynvml.NVML_GPM_METRIC_SM_UTIL),
    ("sm_occupancy", pynvml.NVML_GPM_METRIC_SM_OCCUPANCY),
    ("tensor_active", pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL),
    ("dram_active", pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL),
)


class GpmCounters:
    """GPU performance monitoring (GPM) counters of one GPU, Hopper or newer, or of one MIG instance of it.

    NVML computes them from two samples, which live in the library's memory until `close` frees them.

    Raises:
        pynvml.NVMLError: from every method but `close`.
    """

    def __init__(self, handle: Any, instance: int | None = None) -> None:
        self._handle = handle
        self._instance = instance
        self._samples: list[Any] = []
        self._request = pynvml.c_nvmlGpmMetricsGet_t()
        self._request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        self._request.numMetrics = len(GPM_METRICS)
        for position, (_, metric) in enumerate(GPM_METRICS):
            self._request.metrics[position].metricId = metric
        try:
            for _ in range(2):
                self._samples.append(pynvml.nvmlGpmSampleAlloc())
            self._fill(self._samples[1])
        except pynvml.NVMLError:
            self.close()
            raise

    def read(self) -> dict[str, float]:
        """Return the means since the last `read` (or the start), by GpuSample's fields.

        Fields that NVML does not provide are left out. Shares are 0 to 1.
        """
        self._fill(self._samples[0])
        self._samples.reverse()
        self._request.sample1, self._request.sample2 = self._samples
        pynvml.nvmlGpmMetricsGet(self._request)
        answers = zip(GPM_METRICS, self._request.metrics, strict=False)
        return {
            field: answer.value / 100
            for (field, _), answer in answers
            if answer.nvmlReturn == pynvml.NVML_SUCCESS and isfinite(answer.value)
        }

    def close(self) -> None:
        """Free the two samples that NVML allocated."""
        while self._samples:
            try:
                pynvml.nvmlGpmSampleFree(self._samples.pop())
            except pynvml.NVMLError:  # nothing can be done about it
                continue

    def _fill(self, sample: Any) -> None:
        if self._instance is None:
            pynvml.nvmlGpmSampleGet(self._handle, sample)
        else:
            pynvml.nvmlGpmMigSampleGet(self._handle, self._instance, sample)
