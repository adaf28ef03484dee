"""Calls into a process through gdb, for machines whose registers are not supported.

The process stops for a quarter to half a second.
"""

import re
import shutil
import subprocess
from pathlib import Path

PATIENCE = 30.0


def is_there() -> bool:
    """Return whether gdb can be run."""
    return shutil.which("gdb") is not None


def call(pid: int, function: int, *arguments: int, write: tuple[Path, int] | None = None) -> int:
    """Return the result of a call in the process's main thread.

    `write` is a file to write to an address first.

    Raises:
        OSError: the call failed; PermissionError if gdb may not attach, TimeoutError if it does not finish in time.
    """
    types = ",".join("long" for _ in arguments)
    values = ",".join(map(str, arguments))
    # Symbols of libraries would take seconds to read and are not needed: we know the addresses.
    command = ["gdb", "-batch", "-nx", "-iex", "set auto-solib-add off", "-iex", "set debuginfod enabled off"]
    steps = ["set print symbol off", f"attach {pid}"]
    if write:
        steps.append(f"restore {write[0]} binary {write[1]}")
    steps += [f'printf "returned %ld.\\n", ((long(*)({types})) {function})({values})', "detach"]
    for step in steps:
        command += ["-ex", step]
    try:
        result = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError("gdb did not finish") from None
    match = re.search(r"returned (-?\d+)\.", result.stdout)
    if match is None:
        message = (result.stderr.strip().splitlines() or ["gdb printed nothing"])[-1]
        raise PermissionError(message) if "not permitted" in result.stderr else OSError(message)
    return int(match[1])
