"""Learn a policy from episodes of an environment."""

import torch
from ending import say
from torch import nn

policy = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)
returns = []
for _ in range(10):
    state, logs, total = torch.zeros(4), [], 0.0
    for _ in range(20):
        choice = torch.distributions.Categorical(logits=policy(state))
        action = choice.sample()
        logs.append(choice.log_prob(action))
        state = torch.tanh(state + (action.float() - 0.5) + 0.1 * torch.randn(4))
        total -= state.norm().item()
    optimizer.zero_grad()
    (-torch.stack(logs).sum() * total).backward()
    optimizer.step()
    returns.append(total)
say(returns, network=policy)
