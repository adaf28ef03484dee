"""Identify the job of a recorder: what its recorders have in common, and what distinguishes them.

A launcher is started once per node (`profile-train torchrun --nnodes 2 ...` on each), or starts profile-train once per
rank (`srun profile-train train.py`). All of them may record into one folder, each into its own files.
"""

import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

NODES = ("GROUP_RANK", "NODE_RANK", "PET_NODE_RANK", "SLURM_NODEID")

# Variables by which a scheduler or launcher distinguishes this start from other starts of the same command.
STARTS = (
    ("slurm", ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")),
    ("mpi", ("PMIX_NAMESPACE",)),
    ("mpi", ("OMPI_MCA_ess_base_jobid",)),
    ("flux", ("FLUX_JOB_ID",)),
    ("pbs", ("PBS_JOBID",)),
    ("lsf", ("LSB_JOBID",)),
)

# Launcher options that differ from node to node.
_OWN = ("node-rank", "machine-rank", "local-addr")


@dataclass(frozen=True, slots=True)
class Job:
    """A job as seen by one recorder."""

    id: str
    """ID shared by all recorders of a job, and unlikely to match another job."""
    host: str
    name: str = ""
    """"rank3" or "node1" if the launcher reports it; if empty, only the host distinguishes recorders."""
    start: str | None = None
    """A name for this start of the job, usable as a folder name; None if nothing provides one."""

    @property
    def is_shared(self) -> bool:
        """Return whether several recorders are expected."""
        return bool(self.name)

    @property
    def part(self) -> str:
        """Return a name for the files of this recorder, usable as a file name."""
        return re.sub("[^A-Za-z0-9._-]", "_", f"{self.host}-{self.name}" if self.name else self.host)


def job(words: Sequence[str], environment: Mapping[str, str], host: str) -> Job:
    """Return the job of a recorder that is to run `words`."""
    start = _start(environment)
    digest = binascii.crc32("\0".join((*common(words), start or "")).encode(errors="surrogateescape"))
    return Job(f"{digest:08x}", host, _name(words, environment), start)


def common(words: Sequence[str]) -> tuple[str, ...]:
    """Return a command without the words that differ from node to node."""
    launcher = _launcher(words)
    shared_words, is_value = [], False
    for position, word in enumerate(words):
        is_own = position < launcher and _option(word)[0] in _OWN
        if not is_own and not is_value:
            shared_words.append(word)
        is_value = is_own and "=" not in word
    return tuple(shared_words)


def _name(words: Sequence[str], environment: Mapping[str, str]) -> str:
    launcher = words[: _launcher(words)]
    pairs = zip(map(_option, launcher), (*launcher[1:], ""), strict=False)
    options = {name: value or following for (name, value), following in pairs}
    nodes = options.get("nnodes", options.get("num-machines", environment.get("PET_NNODES", "")))
    numbers = re.findall(r"\d+", nodes)  # two for an elastic job: "1:4"
    node = options.get("node-rank", options.get("machine-rank"))
    node = node or next((environment[name] for name in NODES if environment.get(name)), None)
    if numbers and int(numbers[-1]) > 1:
        return f"node{node}" if node and node.isdigit() else "node"
    # Imported only for a job: otherwise nothing of the agent is loaded.
    from profiler.agent.ranks import RANKS_AND_SIZES, is_batch_script

    if is_batch_script(environment):
        return ""
    for rank, size in RANKS_AND_SIZES:
        if environment.get(rank, "").isdigit() and environment.get(size, "").isdigit():
            return f"rank{int(environment[rank])}" if int(environment[size]) > 1 else ""
    return ""


def _start(environment: Mapping[str, str]) -> str | None:
    for kind, names in STARTS:
        values = [environment[name] for name in names if environment.get(name)]
        if environment.get(names[0]):
            return re.sub("[^A-Za-z0-9._-]", "_", "-".join((kind, *values)))
    return None


def _launcher(words: Sequence[str]) -> int:
    """Return the number of words that belong to a launcher: those before a script, or all."""
    return next((position for position, word in enumerate(words) if word.endswith(".py")), len(words))


def _option(word: str) -> tuple[str, str]:
    if not word.startswith("--"):
        return "", ""
    name, _, value = word[2:].partition("=")
    return name.replace("_", "-"), value
