"""The networks of the recordings, beside LeNet5: small ones of the usual kinds."""

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


class WordLSTM(nn.Module):
    """A word-level language model: embedding, one LSTM, a linear layer to the vocabulary.

    Input: int64 of shape (length, batch). Output: logits of shape (length, batch, vocabulary).
    """

    def __init__(self, vocabulary: int, embedding: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden)
        self.decoder = nn.Linear(hidden, vocabulary)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Logits of the next word at each place."""
        return self.decoder(self.lstm(self.embedding(words))[0])


class CharacterTransformer(nn.Module):
    """A character-level decoder in the manner of GPT-2: learned places, normalization first,
    causal attention.

    Input: int64 of shape (batch, length), length at most `places`. Output: logits of shape
    (batch, length, characters).
    """

    def __init__(self, characters: int, width: int, layers: int, places: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, width)
        self.places = nn.Parameter(0.02 * torch.randn(places, width))
        self.blocks = nn.Sequential(*(_Attention(width) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.decoder = nn.Linear(width, characters, bias=False)

    def forward(self, characters: torch.Tensor) -> torch.Tensor:
        """Logits of the next character at each place."""
        hidden = self.embedding(characters) + self.places[: characters.shape[1]]
        return self.decoder(self.norm(self.blocks(hidden)))


class _Attention(nn.Module):
    HEADS = 4

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.attention(self.norm1(x)).view(batch, length, 3, self.HEADS, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projection(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(functional.gelu(self.wide(self.norm2(x))))


class SparseLogisticRegression(nn.Module):
    """Logistic regression on sparse rows, with sparse gradients: only columns that occur have one.

    Input: columns (int64), starts of the rows in them, and values, as nn.EmbeddingBag has them.
    Output: a logit a row.
    """

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.weight = nn.EmbeddingBag(columns, 1, mode="sum", sparse=True)
        nn.init.zeros_(self.weight.weight)

    def forward(
        self, columns: torch.Tensor, starts: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        """Logits of shape (rows,)."""
        return self.weight(columns, starts, per_sample_weights=values).squeeze(1)
