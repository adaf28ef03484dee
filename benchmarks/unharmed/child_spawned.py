"""Train in spawned children over shared weights."""

import torch
import torch.multiprocessing as mp
from ending import model, say, train


def work(network, number):
    torch.manual_seed(number)
    train(network, steps=5)


if __name__ == "__main__":
    network = model().share_memory()
    for number in range(2):  # one after the other: the sum of two at a time depends on their order
        process = mp.get_context("spawn").Process(target=work, args=(network, number))
        process.start()
        process.join()
        print("child", process.exitcode)
    say(network=network)
