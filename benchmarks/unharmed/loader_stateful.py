"""Save a torchdata loader in the middle of an epoch, and continue with another from there."""

import torch
from ending import model, say
from torchdata.stateful_dataloader import StatefulDataLoader

if __name__ == "__main__":
    torch.manual_seed(0)
    rows = [torch.full((16,), float(row % 5)) for row in range(48)]
    network = model()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.001)
    losses, state = [], None
    for workers in (0, 2):
        for part in range(2):
            loader = StatefulDataLoader(rows, batch_size=8, shuffle=True, num_workers=workers)
            if part:
                loader.load_state_dict(state)
            for number, batch in enumerate(loader):
                loss = (network(batch) - batch.sum(1, keepdim=True)).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
                if not part and number == 2:
                    state = loader.state_dict()
                    break
    say(losses, sorted(state), network=network)
