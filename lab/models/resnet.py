"""ResNet-20, the smallest of its paper's networks for CIFAR-10."""

import torch
from torch import nn
from torch.nn import functional


class ResNet20(nn.Module):
    """ResNet-20 for CIFAR (He et al., CVPR 2016, section 4.2): three stages of three blocks, with
    `width`, 2 width and 4 width channels; shortcuts without parameters (option A). 269,722
    parameters with the paper's width of 16.

    Input: float32 of shape (batch, 3, 32, 32). Output: logits of shape (batch, 10).
    """

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        blocks, incoming = [], width
        for channels in (width, 2 * width, 4 * width):
            for _ in range(3):
                blocks.append(_Block(incoming, channels))
                incoming = channels
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(incoming, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits."""
        hidden = self.blocks(torch.relu(self.norm(self.conv(images))))
        return self.fc(hidden.mean(dim=(2, 3)))


class _Block(nn.Module):
    def __init__(self, incoming: int, channels: int) -> None:
        super().__init__()
        self.stride = channels // incoming
        self.conv1 = nn.Conv2d(incoming, channels, 3, self.stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.norm1(self.conv1(x)))
        hidden = self.norm2(self.conv2(hidden))
        if self.stride > 1:
            added = hidden.shape[1] - x.shape[1]
            x = functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, added))
        return torch.relu(hidden + x)
