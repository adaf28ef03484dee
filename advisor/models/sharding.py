"""The memory that ZeRO, FSDP and offloading need on a GPU and its host, and what data-parallel ranks send.

Sizes are in bytes, rates in bytes/s, times in seconds. `States.sharded` (advisor/models/memory.py) follows the paper;
this module follows the frameworks.
"""

from dataclasses import dataclass

# Bytes per parameter in DeepSpeed's estimators: 16-bit weights and gradients; fp32 weights, momentum and variance; 2
# more bytes while the weights are updated. From "Memory Requirements" in DeepSpeed's documentation.
WEIGHTS, WEIGHTS_AND_GRADIENTS, OPTIMIZER, ALL = 2, 4, 16, 18

# Factor for buffers on the host: DeepSpeed's additional_buffer_factor.
HOST_BUFFER = 1.5

# Units that FSDP holds gathered at once: the one that computes and the one that is prefetched.
GATHERED_UNITS = 2

# Bytes per parameter over the bus (the gradient to the host, the weight back), and through the host's memory for Adam
# in fp32.
OFFLOAD_BUS, OFFLOAD_HOST = 4, 28

# Bytes/s that one GPU's PCIe 4.0 x16 link moves in practice (assumption).
PCIE = 25e9

# Bytes/s that a node's memory moves in practice (assumption).
HOST_MEMORY = 80e9

# Bytes of a bucket in torch's DistributedDataParallel: bucket_cap_mb=25, in MiB.
BUCKET = 25 * 1024**2

# Communication volume of stage 3 relative to an all-reduce, because weights are gathered again for the backward pass;
# stages 1 and 2 have the volume of an all-reduce (Rajbhandari et al., "ZeRO", SC 2020).
ZERO_3_VOLUME = 1.5


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes on one rank's GPU, and on one node's host."""

    gpu: float
    host: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepSpeedEstimate:
    """Memory for parameters, gradients and optimizer state, as DeepSpeed's own estimators compute it."""

    parameters: float
    largest: float = 0.0
    """Parameters of the largest layer, which stage 3 holds whole."""
    gpus: int
    """GPUs per node."""
    nodes: int = 1

    def __post_init__(self) -> None:
        if self.parameters <= 0 or self.gpus < 1 or self.nodes < 1 or not 0 <= self.largest <= self.parameters:
            raise ValueError(f"not a model on GPUs: {self}")

    def stage_2(self, *, offload: bool = False) -> MemoryEstimate:
        """Return the memory at stage 2: 4 psi + 16 psi / D; with the optimizer state on the host, 2 psi."""
        ranks = self.gpus * self.nodes
        if offload:
            return self._estimate(WEIGHTS * self.parameters, max(4 * ranks, OPTIMIZER))
        return self._estimate(WEIGHTS_AND_GRADIENTS * self.parameters + OPTIMIZER * self.parameters / ranks, self._init)

    def stage_3(self, *, offload: bool = False, offload_parameters: bool = False) -> MemoryEstimate:
        """Return the memory at stage 3: 4 x largest + 18 psi / D.

        With the optimizer state on the host, the second term is 2 psi / D; with the weights there too, it is 0. The
        host first creates the whole model once per GPU, as without `deepspeed.zero.Init`.
        """
        ranks = self.gpus * self.nodes
        gathered_bytes = WEIGHTS_AND_GRADIENTS * self.largest
        if offload_parameters:
            return self._estimate(gathered_bytes, max(self._init, ALL / self.nodes))
        if offload:
            return self._estimate(
                gathered_bytes + WEIGHTS * self.parameters / ranks, max(self._init, OPTIMIZER / self.nodes)
            )
        return self._estimate(gathered_bytes + ALL * self.parameters / ranks, self._init)

    @property
    def _init(self) -> float:
        """Return the bytes per parameter on the host while every GPU's process creates the model in fp32."""
        return 4.0 * self.gpus

    def _estimate(self, gpu: float, host_each: float) -> MemoryEstimate:
        return MemoryEstimate(gpu, self.parameters * host_each * HOST_BUFFER)


def gathered(largest_unit: float, element: int = 2) -> float:
    """Return the bytes of the two weight units that FSDP holds gathered, in addition to the rank's part of the states.

    `largest_unit` is in parameters. `element` is the bytes per number of the dtype in which units are gathered: 2 for
    bf16.

    Raises:
        ValueError: the unit is negative, or `element` is below 1.
    """
    if largest_unit < 0 or element < 1:
        raise ValueError(f"no unit of {largest_unit} parameters at {element} bytes")
    return GATHERED_UNITS * largest_unit * element


def offload_time(parameters: float, ranks: int, *, bus: float, host: float) -> float:
    """Return t_off = 4 psi / (D bus) + 28 psi / (D host), the seconds per step of an offloaded update.

    It assumes no overlap. `bus` is the PCIe bandwidth to one GPU, `host` the bandwidth of the host's memory.

    Raises:
        ValueError: a bandwidth is not positive, there is no rank, or the number of parameters is negative.
    """
    if parameters < 0 or ranks < 1 or bus <= 0 or host <= 0:
        raise ValueError(f"cannot move {parameters} parameters of {ranks} ranks at {bus} and {host} bytes/s")
    return parameters / ranks * (OFFLOAD_BUS / bus + OFFLOAD_HOST / host)


def all_reduce_bytes(size: float, ranks: int) -> float:
    """Return 2 (D-1)/D x size, the bytes each rank sends in a ring all-reduce.

    Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 2009.

    Raises:
        ValueError: the size is negative, or there is no rank.
    """
    if size < 0 or ranks < 1:
        raise ValueError(f"nothing to reduce: {size} bytes over {ranks} ranks")
    return 2 * (ranks - 1) / ranks * size


def zero_bytes(size: float, ranks: int, stage: int) -> float:
    """Return the bytes each rank sends per step at a ZeRO stage; 0 is plain data-parallel training.

    Raises:
        ValueError: the stage is none of 0 to 3.
    """
    if stage not in (0, 1, 2, 3):
        raise ValueError(f"ZeRO has no stage {stage}")
    return all_reduce_bytes(size, ranks) * (ZERO_3_VOLUME if stage == 3 else 1.0)
