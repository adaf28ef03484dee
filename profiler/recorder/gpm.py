"""GPU performance monitoring (GPM) counters, which NVML offers for Hopper and newer."""

from math import isfinite
from typing import Any

import pynvml

# GpuSample's field, a share, and NVML's metric in percent.
METRICS = (
    ("sm_active", pynvml.NVML_GPM_METRIC_SM_UTIL),
    ("sm_occupancy", pynvml.NVML_GPM_METRIC_SM_OCCUPANCY),
    ("tensor_active", pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL),
    ("dram_active", pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL),
)


class GpmCounters:
    """The counters of one GPU, or of one MIG instance of it.

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
        self._request.numMetrics = len(METRICS)
        for position, (_, metric) in enumerate(METRICS):
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

        Fields that NVML cannot give are left out. Shares are 0 to 1.
        """
        self._fill(self._samples[0])
        self._samples.reverse()
        self._request.sample1, self._request.sample2 = self._samples
        pynvml.nvmlGpmMetricsGet(self._request)
        answers = zip(METRICS, self._request.metrics, strict=False)
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
            except pynvml.NVMLError:  # nothing is left to be done about it
                continue

    def _fill(self, sample: Any) -> None:
        if self._instance is None:
            pynvml.nvmlGpmSampleGet(self._handle, sample)
        else:
            pynvml.nvmlGpmMigSampleGet(self._handle, self._instance, sample)
