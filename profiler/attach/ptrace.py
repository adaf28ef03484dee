"""Call a function in a process's main thread, by ptrace(2) on x86-64 Linux.

The thread stops for about a millisecond. Every register is restored, including those for floats and vectors. Other
threads continue meanwhile, so a lock that one of them holds gets released. A call that does not return is aborted and
the thread is put back where it was.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

PATIENCE = 2.0
"""Timeout of a call, in seconds; a call normally takes microseconds."""

# linux/ptrace.h and linux/elf.h
_CONT, _DETACH, _GETREGSET, _SETREGSET, _SEIZE, _INTERRUPT = 7, 17, 0x4204, 0x4205, 0x4206, 0x4207
_NT_PRSTATUS, _NT_X86_XSTATE = 1, 0x202
_EVENT_STOP = 128
_WALL = 0x40000000

# sys/user.h: struct user_regs_struct, 27 registers of 8 bytes.
_REGISTERS = struct.Struct("<27Q")
_RBP, _RAX, _RCX, _RDX, _RSI, _RDI, _ORIG_RAX, _RIP, _CS, _RSP = 4, 10, 11, 12, 13, 14, 15, 16, 17, 19
_R9, _R8 = 8, 9
_ARGUMENTS = (_RDI, _RSI, _RDX, _RCX, _R8, _R9)
_CODE_64 = 0x33
_RED_ZONE = 128
_XSTATE_ROOM = 1 << 16  # AVX-512 and AMX need 11 KiB
_MASK = (1 << 64) - 1

NOWHERE = 0
"""The return address of a call: nothing is mapped there, so the thread stops."""


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)


def is_possible(pid: int) -> bool:
    """Return whether ptrace calls work for this process: x86-64, and no shadow stack.

    A shadow stack would not let a call return to an unmapped address.
    """
    return os.uname().machine == "x86_64" and "shstk" not in Path(f"/proc/{pid}/status").read_text()


class Thread:
    """A thread that is stopped until the block ends.

    Raises:
        OSError: the thread cannot be stopped.
    """

    def __init__(self, tid: int) -> None:
        self._tid = tid
        self._pending: list[int] = []
        """Signals that arrived while the thread was stopped, delivered when it continues."""

    def __enter__(self) -> Thread:
        _ptrace(_SEIZE, self._tid)
        try:
            _ptrace(_INTERRUPT, self._tid)
            if not self._reaches(_requested):
                raise TimeoutError(f"Thread {self._tid} is in a system call that cannot be interrupted")
            self._registers = self._get(_NT_PRSTATUS, _REGISTERS.size)
            self._vectors = self._get(_NT_X86_XSTATE, _XSTATE_ROOM)
            if _REGISTERS.unpack(self._registers)[_CS] != _CODE_64:
                raise OSError("It does not run 64-bit code")
        except BaseException:
            self._detach()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._detach()

    def call(self, function: int, *arguments: int) -> int:
        """Call a function in the thread and return its result.

        Raises:
            TimeoutError: the call did not return; the thread is put back where it was.
            OSError: the call failed; the thread is put back where it was.
        """
        registers = list(_REGISTERS.unpack(self._registers))
        stack = ((registers[_RSP] - _RED_ZONE) & ~0xF) - 8
        self.write(stack, struct.pack("<Q", NOWHERE))
        for register, value in zip(_ARGUMENTS, arguments, strict=False):
            registers[register] = value & _MASK
        registers[_RAX] = 0
        registers[_ORIG_RAX] = _MASK  # -1: the system call in which it was stopped is not restarted yet
        registers[_RIP], registers[_RSP] = function, stack
        try:
            self._set(_NT_PRSTATUS, _REGISTERS.pack(*registers))
            self._run()
            return int(_REGISTERS.unpack(self._get(_NT_PRSTATUS, _REGISTERS.size))[_RAX])
        finally:
            self._set(_NT_X86_XSTATE, self._vectors)
            self._set(_NT_PRSTATUS, self._registers)

    def write(self, address: int, data: bytes) -> None:
        """Write to the process's memory."""
        with open(f"/proc/{self._tid}/mem", "r+b", buffering=0) as memory:
            memory.seek(address)
            memory.write(data)

    # ---- within ----

    def _run(self) -> None:
        """Run the thread until the call returns."""
        _ptrace(_CONT, self._tid)
        if not self._reaches(lambda number, event: event == 0 and number == signal.SIGSEGV):
            _ptrace(_INTERRUPT, self._tid)
            self._reaches(_requested)
            raise TimeoutError("The call did not return")
        if _REGISTERS.unpack(self._get(_NT_PRSTATUS, _REGISTERS.size))[_RIP] != NOWHERE:
            raise OSError("The call failed")

    def _reaches(self, stop: Callable[[int, int], bool]) -> bool:
        """Return whether the thread reaches a stop that `stop(signal, event)` accepts, within PATIENCE.

        It continues after any other stop. Signals that arrive are kept for it.

        Raises:
            ProcessLookupError: the process has ended.
        """
        deadline = time.monotonic() + PATIENCE
        while True:
            pid, status = os.waitpid(self._tid, os.WNOHANG | _WALL)
            if not pid:
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.0001)
                continue
            if not os.WIFSTOPPED(status):
                raise ProcessLookupError("The program has ended")
            number, event = os.WSTOPSIG(status), status >> 16
            if stop(number, event):
                return True
            if event == 0:
                self._pending.append(number)
            _ptrace(_CONT, self._tid)

    def _detach(self) -> None:
        with contextlib.suppress(OSError):  # it has ended, or does not stop and is released when we end
            _ptrace(_DETACH, self._tid, 0, 0)
        for number in self._pending:
            with contextlib.suppress(OSError):
                os.kill(self._tid, number)
        self._pending.clear()

    def _get(self, kind: int, room: int) -> bytes:
        buffer = ctypes.create_string_buffer(room)
        vector = _Vector(ctypes.addressof(buffer), room)
        _ptrace(_GETREGSET, self._tid, kind, ctypes.addressof(vector))
        return buffer.raw[: vector.length]

    def _set(self, kind: int, data: bytes) -> None:
        buffer = ctypes.create_string_buffer(data, len(data))
        vector = _Vector(ctypes.addressof(buffer), len(data))
        _ptrace(_SETREGSET, self._tid, kind, ctypes.addressof(vector))


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Delay Ctrl-C and similar signals: a thread left in the middle of a call would end the program."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _requested(_number: int, event: int) -> bool:
    """Return whether the stop is the one that was requested."""
    return event == _EVENT_STOP


def _ptrace(request: int, tid: int, address: int = 0, data: int = 0) -> None:
    if _libc.ptrace(request, tid, address, data) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
