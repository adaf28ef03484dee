"""The recorder behind the context manager: a process that learns the program's end through a pipe."""

import contextlib
import json
import os
import select
import sys
from pathlib import Path

from profiler.errors import ProfilerError
from profiler.options import RecordingOptions
from profiler.printable import say
from profiler.recorder import folder as run_folder
from profiler.recorder.record import Recorder, new_run
from profiler.schema import Outcome

_SAID: dict[bytes, Outcome] = {b"completed": "completed", b"failed": "failed"}


def main(arguments: list[str]) -> None:
    """Record a program until its outcome arrives on stdin, stdin is closed, or the program ends.

    Args:
        arguments: Run folder, rings folder, PID of the program, origin (ns), options as JSON, suffix and ID of a job or
            two empty words, the command.
    """
    folder, rings, program, origin, options_text, part, job, *command = arguments
    options = RecordingOptions(**json.loads(options_text))
    pid = int(program)
    start = run_folder.started(pid)
    with contextlib.suppress(OSError):
        os.nice(5)
    try:
        run = new_run(tuple(command), int(origin), options.budget, job or None)
        recorder = Recorder(Path(folder), Path(rings), run, pid, options, origin=int(origin), part=part)
        outcome: Outcome | None = None
        while True:
            ready, _, _ = select.select([sys.stdin], [], [], recorder.poll())
            if ready:
                outcome = _SAID.get(os.read(sys.stdin.fileno(), 64))
                break
            # Workers forked by the program hold the pipe, too, so it may stay open after the program has ended.
            if not run_folder.is_alive(pid, start):
                break
        recorder.finish(outcome, 0 if outcome == "completed" else 1 if outcome == "failed" else None)
    except ProfilerError as error:
        say(str(error))
        sys.exit(1)
