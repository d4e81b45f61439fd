"""LeNet5 as Caffe has it, the network of the demo."""

import torch
from torch import nn


class LeNet5(nn.Module):
    """Two convolutions with pooling, then two linear layers; 431,080 parameters with Caffe's 500
    hidden units.

    Like Caffe's lenet.prototxt it has one ReLU only, between the linear layers.
    Input: float32 of shape (batch, 1, 28, 28). Output: logits of shape (batch, 10).
    """

    def __init__(self, hidden: int = 500) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, kernel_size=5)
        self.conv2 = nn.Conv2d(20, 50, kernel_size=5)
        self.pool = nn.MaxPool2d(2)
        self.fc1 = nn.Linear(50 * 4 * 4, hidden)
        self.fc2 = nn.Linear(hidden, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits."""
        hidden = self.pool(self.conv1(images))
        hidden = self.pool(self.conv2(hidden)).flatten(1)
        return self.fc2(torch.relu(self.fc1(hidden)))
