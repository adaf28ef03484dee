"""A script that measures how long a matmul takes with different numbers of threads.

    python products.py ROWS INPUTS OUTPUTS THREADS,THREADS,...

The Python that ran the training runs it once the training has ended. It prints seconds by number of threads, as JSON;
the object is empty if other programs occupied the cores meanwhile.
"""

import json
import os
import sys
import time
from typing import Any

# Seconds for all thread counts together; a matmul takes microseconds to tenths of a second.
LONGEST = 2.0
MOST_ROUNDS = 50
# Matmuls after each change of the thread count, while the threads start and the scheduler places them.
WARM_UP = 2
IN_A_ROW = 3
# Least CPU seconds per second of one thread; with less, other programs used its core.
UNDISTURBED = 0.9
FEWEST = 3


def seconds(torch: Any, rows: int, inputs: int, outputs: int, numbers: list[int]) -> dict[int, float]:
    """Return the median seconds of a matmul by number of threads.

    `numbers` begins with 1; each round measures all of them. Only rounds in which a single thread had its core to
    itself count; with fewer than FEWEST of them the result is empty.
    """
    left, right = torch.ones(rows, inputs), torch.ones(inputs, outputs)
    times: dict[int, list[float]] = {number: [] for number in numbers}
    end = time.perf_counter() + LONGEST
    for _ in range(MOST_ROUNDS):
        is_undisturbed = True
        for number in numbers:
            torch.set_num_threads(number)
            for _ in range(WARM_UP):
                torch.mm(left, right)
            begin, cpu = time.perf_counter(), time.thread_time()
            for _ in range(IN_A_ROW):
                torch.mm(left, right)
            wall_seconds, cpu_seconds = time.perf_counter() - begin, time.thread_time() - cpu
            if number == 1:
                is_undisturbed = cpu_seconds >= UNDISTURBED * wall_seconds
            if is_undisturbed:
                times[number].append(wall_seconds / IN_A_ROW)
        if time.perf_counter() > end:
            break
    if len(times[1]) < FEWEST:
        return {}
    return {number: sorted(durations)[len(durations) // 2] for number, durations in times.items()}


def main(arguments: list[str]) -> None:
    """Measure with the arguments of the command line, and print."""
    own_folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != own_folder]  # our modules shadow others
    import torch

    rows, inputs, outputs = map(int, arguments[:3])
    numbers = [int(number) for number in arguments[3].split(",")]
    sys.stdout.write(json.dumps(seconds(torch, rows, inputs, outputs, numbers)))


if __name__ == "__main__":
    main(sys.argv[1:])
