"""Train within asyncio."""

import asyncio

from ending import model, say, train


async def main():
    network = model()
    losses = []
    for _ in range(10):
        losses += await asyncio.to_thread(train, network, steps=1)
        await asyncio.sleep(0)
    say(losses, network=network)


asyncio.run(main())
