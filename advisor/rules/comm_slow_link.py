"""Large collectives are slower than any link between GPUs.

NVLink, xGMI and InfiniBand reach tens to hundreds of GB/s, and PCIe 3.0 with 16 lanes about 12. If a large collective
is far slower, there are two possible causes. It waited for a rank that started it later, or it takes the wrong path:
through the host's memory because peer access is off, or over Ethernet sockets because the InfiniBand or EFA plugin was
not found.

Wrong when: the machines are connected only by Ethernet of 25 Gbit/s or less. The link then has its normal speed, and
only fewer bytes or fewer reductions help.

Source: nccl-tests: performance reported by NCCL tests, https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
Source: NCCL: troubleshooting, https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html
"""

from advisor.metrics import Metrics, Threshold, communication, settings, step
from advisor.models.effects import Triple
from advisor.rules._phases import PASSES, remove_exposed
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, bash, evidence, measure
from advisor.units import share, size

RULE = Rule("Find out why collectives are slower than the link", Area.STALLS, Confidence.HEURISTIC, difficulty=2)

MIN_SHARE = Threshold(0.10, "Share of the step: removing 40 % of a smaller share gains less than 4 % (assumption).")

MAX_BANDWIDTH = Threshold(
    5e9, "Half the speed of PCIe 3.0 with 16 lanes, the slowest link that is suitable for training."
)

MIN_BYTES = Threshold(1e6, "Below a megabyte, latency dominates, not bandwidth (nccl-tests).")

ATTAINED = 10e9
"""Bytes/s of a ring over PCIe 3.0 with 16 lanes: the least to expect once the cause is removed."""

FOUND: Triple = (0.0, 0.5, 1.0)
"""Share of that saving that is realized (assumption): none if the ranks wait for a slower one that stays slow."""

CODE = """\
# which path NCCL or RCCL takes: P2P or NET/IB are fast, SHM is slower, NET/Socket is Ethernet
NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH torchrun ... 2>&1 | grep -E "via|NET/"
nvidia-smi topo -m  # on AMD: rocm-smi --showtopo
# the link alone, without your program: all_reduce_perf -b 1M -e 256M -f 2 -g 8 (nccl-tests, rccl-tests)
# whether a rank is late: profile-train report trace_rank*.json.gz, all ranks together
"""


def when(m: Metrics) -> Evidence | None:
    """If exposed collectives of at least a megabyte take at least 10 % of the step and reach less than 5 GB/s,"""
    if m[settings.world_size] < 2:
        return None
    exposure, collective = measure(m, step.exposed_comm_fraction, ">=", MIN_SHARE), m[communication.exposed_collective]
    speed = measure(m, communication.exposed_bandwidth, "<", MAX_BANDWIDTH)
    is_large = (collective.bytes or 0) >= m[MIN_BYTES] * collective.calls
    return evidence(exposure, speed, note=collective.name) if is_large else None


def then(m: Metrics, found: Evidence) -> Advice:
    """then find out which rank is late, or which link the collective uses."""
    collective, speed = m[communication.exposed_collective], m[communication.exposed_bandwidth]
    waits_are_known = collective.waited is not None
    late_clause = (
        "" if waits_are_known else "Either this rank waits for a late rank, which the traces of all ranks show, or "
    )
    article = "The" if waits_are_known else "the"
    exposed_seconds = m[step.exposed_comm_fraction] * sum(m[step.modeled_phases].values())
    return Advice(
        then=f"Find out why {found.note} of {size((collective.bytes or 0) / collective.calls)} moves {size(speed)}/s. "
        f"{late_clause}{article} data takes a slow path. Communication is exposed for "
        f"{share(m[step.exposed_comm_fraction])} of the step.",
        changes=(bash(CODE),),
        basis="0, 50 or 100 % of the exposed time shrinks as if the link reached 10 GB/s.",
        effect=remove_exposed("communication", exposed_seconds * (1 - speed / ATTAINED), FOUND, within=PASSES),
        memory=0,
        risk="None: the first step is only a measurement.",
    )
