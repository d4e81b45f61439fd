"""Small networks of common kinds for recordings, in addition to LeNet5 and ResNet-20."""

import torch
from torch import nn
from torch.nn import functional


class WordLSTM(nn.Module):
    """A word-level language model: embedding, an LSTM, a linear layer to the vocabulary.

    Input: int64 of shape (length, batch). Output: logits of shape (length, batch, vocabulary).
    """

    def __init__(self, vocabulary: int, embedding: int, hidden: int, layers: int = 1) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers)
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


class SentenceEncoder(nn.Module):
    """A classifier of sentences in the manner of BERT: learned places, attention in both
    directions, no dropout; the mean of the last layer over a sentence's words decides.

    Input: int64 of shape (batch, length), 0 where there is no word. Output: logits of shape
    (batch, 2).
    """

    def __init__(self, vocabulary: int, width: int, layers: int, places: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.places = nn.Parameter(0.1 * torch.randn(places, width))
        nn.init.normal_(self.embedding.weight, std=0.1)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, "gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.decoder = nn.Linear(width, 2)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Logits."""
        hidden = self.embedding(words) + self.places[: words.shape[1]]
        hidden = self.encoder(hidden, src_key_padding_mask=words == 0)
        present = (words != 0).unsqueeze(-1)
        return self.decoder((hidden * present).sum(dim=1) / present.sum(dim=1))


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
