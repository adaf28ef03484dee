"""Train in a child of a fork server."""

import torch.multiprocessing as mp
from ending import model, say, train


def work(queue):
    queue.put(train(model()))


if __name__ == "__main__":
    context = mp.get_context("forkserver")
    queue = context.Queue()
    process = context.Process(target=work, args=(queue,))
    process.start()
    say(queue.get())
    process.join()
    print("child", process.exitcode)
