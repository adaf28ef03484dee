"""Time each NVML call that the recorder makes, and a GPM sample, in microseconds."""

import statistics
import time

import pynvml as nvml
from common import say

CALLS = {
    "utilization": nvml.nvmlDeviceGetUtilizationRates,
    "memory": nvml.nvmlDeviceGetMemoryInfo,
    "power": nvml.nvmlDeviceGetPowerUsage,
    "temperature": lambda gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
    "sm_clock": lambda gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
    "throttle_reasons": nvml.nvmlDeviceGetCurrentClocksThrottleReasons,
    "processes": nvml.nvmlDeviceGetComputeRunningProcesses,
    "pcie_link": nvml.nvmlDeviceGetCurrPcieLinkGeneration,
    "energy": nvml.nvmlDeviceGetTotalEnergyConsumption,
}

nvml.nvmlInit()
gpu = nvml.nvmlDeviceGetHandleByIndex(0)


def gpm_sample(gpu):
    sample = nvml.nvmlGpmSampleAlloc()
    nvml.nvmlGpmSampleGet(gpu, sample)
    nvml.nvmlGpmSampleFree(sample)


times = {}
for name, call in {**CALLS, "gpm_sample": gpm_sample}.items():
    taken = []
    try:
        for _ in range(100):
            begin = time.perf_counter()
            call(gpu)
            taken.append((time.perf_counter() - begin) * 1e6)
    except nvml.NVMLError as error:
        times[name] = {"refused": str(error)}
    else:
        times[name] = {"p50": statistics.median(taken), "p99": sorted(taken)[98]}
uuid = nvml.nvmlDeviceGetUUID(gpu)
say(uuid=uuid if isinstance(uuid, str) else uuid.decode(), calls=times)
