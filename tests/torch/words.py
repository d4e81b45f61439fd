"""A network with an embedding, and steps of it."""

import torch
from torch import nn


class Words(nn.Module):
    """An embedding with sparse gradients and a layer over it; one layer that nobody uses."""

    def __init__(self, mode_sparse: bool = True):
        super().__init__()
        torch.manual_seed(3)
        self.embedding = nn.Embedding(50, 4, sparse=mode_sparse)
        self.fc = nn.Linear(4, 3)
        self.unused = nn.Linear(2, 2)
        self.frozen = nn.Parameter(torch.zeros(3), requires_grad=False)

    def forward(self, words):
        return self.fc(self.embedding(words)).square().sum()


def run(model, optimizer, count: int, each=None) -> None:
    for step in range(count):
        optimizer.zero_grad()
        model(torch.tensor([3, 1, 3, step])).backward()
        if each is not None:
            each(step + 1)
        optimizer.step()
