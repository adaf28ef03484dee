"""Print the speedup of C16's largest matmul from one core to all cores."""

import statistics
import time

import torch
from training import cores

ROUNDS = 15


def seconds(threads, a, b):
    torch.set_num_threads(threads)
    start = time.perf_counter()
    for _ in range(5):
        a @ b
    return time.perf_counter() - start


def main():
    a, b = torch.randn(128, 2048), torch.randn(2048, 2048)
    both = [(seconds(1, a, b), seconds(cores(), a, b)) for _ in range(ROUNDS)]
    print(statistics.median(one / many for one, many in both[2:]))


if __name__ == "__main__":
    main()
