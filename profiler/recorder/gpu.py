"""Sample the program's GPUs through NVML, a few times per second and from outside the program."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pynvml

from profiler.recorder.numa import SYSFS, node_of_pci
from profiler.recorder.nvml import FINAL, GpmCounters, NvmlDevice, choose, explain
from profiler.schema import Gpu, GpuSample, Problem

POWER_PERIOD = 0.5
"""Seconds between two readings of power and clocks.

The readings are means. Each call takes the driver's lock, which the program's threads need for launches, too.
"""

SLOW_PERIOD = 2.0
"""Seconds between two readings of temperature, link and the list of processes.

The list alone takes 4.5 ms under the driver's lock (MangoHud, pull request 2104).
"""

GPM_PERIOD = 0.15
"""Minimum seconds between two readings of the GPM counters: NVML refreshes them only every 100 ms."""

INITIAL_PID_NAMESPACE = 0xEFFFFFFC
"""Inode of /proc/self/ns/pid outside every container (Linux, PROC_PID_INIT_INO)."""


@dataclass(slots=True)
class _Source:
    """A sampled GPU. For a MIG device, `board` is the GPU that `slice` is a part of; else both are the same."""

    gpu: Gpu
    slice: NvmlDevice
    board: NvmlDevice
    counters: GpmCounters | None
    counters_read: float | None = None
    _held: dict[str, tuple[float, object, Any]] = field(default_factory=dict)

    def held(self, name: str, period: float, time: float, read: Callable[[], Any], of: object = None) -> Any:
        """Return the last result of `read`, called again after `period` seconds or for a different `of`."""
        last = self._held.get(name)
        if last is None or time - last[0] >= period or last[1] != of:
            self._held[name] = last = time, of, read()
        return last[2]


class GpuSampler:
    """A sampler of the GPUs; without one it is empty and `problems` explains why.

    The reader of `problems` may clear them.
    """

    def __init__(self, visible: str | None = None, order: str | None = None, sysfs: Path = SYSFS) -> None:
        """Find the GPUs that the program can see; never raise.

        By default, CUDA orders the GPUs fastest first, and NVML by PCI bus. If the models differ, an index may mean
        different GPUs in the program and in NVML. Then all GPUs are sampled; the advisor keeps those that torch saw.

        Args:
            visible: The program's CUDA_VISIBLE_DEVICES: indexes, UUIDs or their beginnings; None for all GPUs.
            order: The program's CUDA_DEVICE_ORDER.
            sysfs: Folder in which Linux describes NUMA nodes.
        """
        self._sysfs = sysfs
        self.gpus: tuple[Gpu, ...] = ()
        self._sources: list[_Source] = []
        self.problems: list[Problem] = []
        self._time = 0.0
        self._started = False
        self._foreign_pids = _in_pid_namespace()
        if visible is not None and (visible.strip() or ",")[0] in "-,":
            self._complain(
                f"CUDA_VISIBLE_DEVICES={visible!r} hides every GPU from the program, so none was measured. "
                "Unset it if the program should use one."
            )
            return
        try:
            pynvml.nvmlInit()
            self._started = True
            self._find(visible, order)
        except pynvml.NVMLError as error:
            self._complain(*explain(error))
        if not self.gpus:
            self.close()

    def sample(self, time: float, pids: Collection[int]) -> list[GpuSample]:
        """Return one row for each GPU that still answers.

        GPM counters are read at most every GPM_PERIOD and are means since their last reading. `process_memory` is None
        in a container whose PIDs differ from those that NVML reports. `memory_used` is all memory that is unavailable
        to programs, including the driver's own reserve.

        Args:
            time: Now, on the run clock.
            pids: The run's processes.
        """
        self._time = time
        return [self._row(source, time, pids) for source in self._sources if not source.board.lost]

    def close(self) -> None:
        """Release NVML; the sampler then has no more GPUs to sample."""
        for source in self._sources:
            if source.counters:
                source.counters.close()
        self._sources.clear()
        if self._started:
            self._started = False
            try:
                pynvml.nvmlShutdown()
            except pynvml.NVMLError as error:
                self._complain(f"NVML did not shut down ({error}). No data is lost.")

    def _complain(self, message: str, code: str = "") -> None:
        self.problems.append(Problem(time=self._time, source="nvml", message=message, code=code))

    def _find(self, visible: str | None, order: str | None) -> None:
        uuids: list[str] = []
        devices: dict[str, tuple[int, NvmlDevice, NvmlDevice]] = {}
        for index in range(pynvml.nvmlDeviceGetCount()):
            board = self._board(index)
            uuid = board.read("nvmlDeviceGetUUID") if board else None
            uuids.append(uuid or "")
            if board and uuid:
                devices[uuid] = index, board, board
                devices |= {mig_uuid: (index, mig, board) for mig_uuid, mig in self._migs(board)}
        models = {board.read("nvmlDeviceGetName") for _, device, board in devices.values() if device is board}
        if visible and visible.strip()[0].isdecimal() and order != "PCI_BUS_ID" and len(models) > 1:
            visible = None
        chosen_uuids = choose(visible, uuids, [uuid for uuid in devices if uuid not in uuids])
        if not chosen_uuids:
            self._complain(
                f"NVML shows {len(uuids)} GPU(s) here, but none that CUDA_VISIBLE_DEVICES={visible!r} names, so none "
                "was measured. Compare it with `nvidia-smi -L`."
                if visible is not None and uuids
                else "The NVIDIA driver is loaded but shows no GPU, so none was measured. See `nvidia-smi -L`; in a "
                "container, start it with GPUs."
            )
        for uuid in chosen_uuids:
            index, device, board = devices[uuid]
            if any(source.gpu.index == index for source in self._sources):
                self._complain(f"Only the first visible MIG device of {board.name} was measured.")
                continue
            self._sources.append(self._source(index, uuid, device, board))
        self.gpus = tuple(source.gpu for source in self._sources)

    def _board(self, index: int) -> NvmlDevice | None:
        try:
            return NvmlDevice(pynvml.nvmlDeviceGetHandleByIndex(index), f"GPU {index}", self._complain)
        except pynvml.NVMLError as error:
            message = f"GPU {index} could not be opened ({error}), so it was not measured. See `nvidia-smi`."
            self._complain(message, "not-opened")
            return None

    def _migs(self, board: NvmlDevice) -> Iterator[tuple[str, NvmlDevice]]:
        if (board.read("nvmlDeviceGetMigMode") or [0])[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
            return
        for position in range(board.read("nvmlDeviceGetMaxMigDeviceCount") or 0):
            handle = board.read("nvmlDeviceGetMigDeviceHandleByIndex", position)
            mig = NvmlDevice(handle, f"MIG device {position} of {board.name}", self._complain)
            uuid = mig.read("nvmlDeviceGetUUID") if handle is not None else None
            if uuid:
                yield uuid, mig

    def _source(self, index: int, uuid: str, device: NvmlDevice, board: NvmlDevice) -> _Source:
        counters = self._counters(device, board)
        memory = device.read("nvmlDeviceGetMemoryInfo")
        if memory is None:
            self._complain(f"{device.name} does not report its memory size, which is recorded as 0.")
        mig = board.read("nvmlDeviceGetMigMode")
        pci = board.read("nvmlDeviceGetPciInfo_v3")
        cuda = _system("nvmlSystemGetCudaDriverVersion_v2")
        gpu = Gpu(
            index=index,
            uuid=uuid,
            name=device.read("nvmlDeviceGetName") or "unknown GPU",
            capability=board.read("nvmlDeviceGetCudaComputeCapability"),
            memory_total=memory.total if memory else 0,
            sm_clock_max=board.read("nvmlDeviceGetMaxClockInfo", pynvml.NVML_CLOCK_SM),
            memory_clock_max=board.read("nvmlDeviceGetMaxClockInfo", pynvml.NVML_CLOCK_MEM),
            memory_bus_width=board.read("nvmlDeviceGetMemoryBusWidth"),
            power_limit=_scaled(board.read("nvmlDeviceGetEnforcedPowerLimit"), 1e-3),
            pcie_generation_max=board.read("nvmlDeviceGetMaxPcieLinkGeneration"),
            pcie_width_max=board.read("nvmlDeviceGetMaxPcieLinkWidth"),
            driver=_system("nvmlSystemGetDriverVersion"),
            cuda_driver=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
            mig=None if mig is None else mig[0] == pynvml.NVML_DEVICE_MIG_ENABLE,
            numa_node=None if pci is None else node_of_pci(pci.domain, pci.bus, pci.device, self._sysfs),
            gpm=counters is not None,
        )
        return _Source(gpu, slice=device, board=board, counters=counters)

    def _counters(self, device: NvmlDevice, board: NvmlDevice) -> GpmCounters | None:
        support = board.read("nvmlGpmQueryDeviceSupport")
        if support is None or not support.isSupportedDevice:
            return None
        instance = None if device is board else device.read("nvmlDeviceGetGpuInstanceId")
        try:
            return GpmCounters(board.handle, instance)
        except pynvml.NVMLError as error:
            self._without_counters(device, error)
            return None

    def _without_counters(self, device: NvmlDevice, error: pynvml.NVMLError) -> None:
        self._complain(
            f"{device.name} has performance counters (GPM) but they could not be read ({error}): SM, tensor core and "
            "memory activity are not measured. They may need root or the driver option "
            "NVreg_RestrictProfilingToAdminUsers=0, and no other active profiler."
        )

    def _row(self, source: _Source, time: float, pids: Collection[int]) -> GpuSample:
        board = source.board
        utilization = source.slice.read("nvmlDeviceGetUtilizationRates")
        memory = source.slice.read("nvmlDeviceGetMemoryInfo")
        return GpuSample(
            time=time,
            gpu=source.gpu.index,
            utilization=None if utilization is None else utilization.gpu / 100,
            memory_used=None if memory is None else memory.used,
            **source.held("power", POWER_PERIOD, time, lambda: _power(board)),
            **source.held("link", SLOW_PERIOD, time, lambda: _link(board)),
            process_memory=source.held(
                "processes", SLOW_PERIOD, time, lambda: self._process_memory(source.slice, pids), frozenset(pids)
            ),
            **self._activity(source, time),
        )

    def _activity(self, source: _Source, time: float) -> dict[str, Any]:
        """Return the GpuSample fields of the GPM counters; empty if there are none or it is too soon."""
        if source.counters_read is None:  # first read when the sampler was opened, not long ago
            source.counters_read = time
        if not source.counters or time - source.counters_read < GPM_PERIOD:
            return {}
        source.counters_read = time
        try:
            return dict(source.counters.read())
        except pynvml.NVMLError as error:
            if error.value in FINAL:
                source.counters.close()
                source.counters = None
                self._without_counters(source.slice, error)
            return {}

    def _process_memory(self, device: NvmlDevice, pids: Collection[int]) -> int | None:
        processes = device.read("nvmlDeviceGetComputeRunningProcesses")
        if processes is None:
            return None
        sizes: list[int | None] = [process.usedGpuMemory for process in processes if process.pid in pids]
        if None in sizes or (not sizes and self._foreign_pids):
            return None
        return sum(size for size in sizes if size is not None)


def _power(board: NvmlDevice) -> dict[str, Any]:
    """Return the readings that change within a second. The driver updates them little more often than they are read."""
    return {
        "power": _scaled(board.read("nvmlDeviceGetPowerUsage"), 1e-3),
        "energy": _scaled(board.read("nvmlDeviceGetTotalEnergyConsumption"), 1e-3),
        "sm_clock": board.read("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_SM),
        "memory_clock": board.read("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_MEM),
        "throttle": board.first("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"),
    }


def _link(board: NvmlDevice) -> dict[str, Any]:
    """Return the readings that change over seconds."""
    return {
        "temperature": board.read("nvmlDeviceGetTemperature", pynvml.NVML_TEMPERATURE_GPU),
        "pcie_generation": board.read("nvmlDeviceGetCurrPcieLinkGeneration"),
        "pcie_width": board.read("nvmlDeviceGetCurrPcieLinkWidth"),
    }


def _scaled(value: float | None, unit: float) -> float | None:
    return None if value is None else value * unit


def _system(function: str) -> Any:
    """Return a reading of the driver rather than of a device; None if it is unavailable."""
    try:
        return getattr(pynvml, function)()
    except (pynvml.NVMLError, AttributeError):
        return None


def _in_pid_namespace() -> bool:
    """Return whether processes here have other PIDs than the ones that the driver reports."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino != INITIAL_PID_NAMESPACE
    except OSError:
        return False
