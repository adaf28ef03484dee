"""REINFORCE that gives its policy one observation per call."""

import random

import torch
from clock import FIXED, running
from torch import nn
from torch.distributions import Categorical


class Cart:
    def reset(self):
        self.state, self.time = [random.random() for _ in range(8)], 0
        return self.state

    def step(self, action):
        self.state = [0.9 * value + 0.1 * action for value in self.state]
        self.time += 1
        return self.state, self.state[0], self.time >= 64


policy = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 2))
optimizer = torch.optim.Adam(policy.parameters())


def episode(env):
    observation, done = env.reset(), False
    chosen, rewards = [], []
    while not done:
        logits = policy(torch.tensor(observation).unsqueeze(0))  # planted
        action = Categorical(logits=logits)  # planted
        drawn = action.sample()  # planted
        chosen.append(action.log_prob(drawn))  # planted
        observation, reward, done = env.step(drawn.item())
        rewards.append(reward)
    return torch.cat(chosen), torch.tensor(rewards)


def episodes(envs):
    observations = torch.tensor([env.reset() for env in envs])
    chosen, rewards = [], []
    for _ in range(64):
        action = Categorical(logits=policy(observations))
        drawn = action.sample()
        chosen.append(action.log_prob(drawn))
        seen = [env.step(each) for env, each in zip(envs, drawn.tolist(), strict=True)]
        observations = torch.tensor([each[0] for each in seen])
        rewards.append(torch.tensor([each[1] for each in seen]))
    return torch.cat(chosen), torch.cat(rewards)


envs = [Cart() for _ in range(8)]
while running():
    if FIXED:
        chosen, rewards = episodes(envs)
    else:
        chosen, rewards = map(torch.cat, zip(*[episode(env) for env in envs], strict=True))
    loss = -(chosen * (rewards - rewards.mean())).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
