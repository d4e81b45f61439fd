"""A small network in NumPy, on made-up data with a rule that can be learnt."""

import numpy as np

HIDDEN = 32


def start() -> dict[str, np.ndarray]:
    """The same initial weights for everybody: 25,450 values."""
    draw = np.random.default_rng(0)
    return {
        "w1": draw.normal(0, 0.05, (784, HIDDEN)).astype(np.float32),
        "b1": np.zeros(HIDDEN, np.float32),
        "w2": draw.normal(0, 0.05, (HIDDEN, 10)).astype(np.float32),
        "b2": np.zeros(10, np.float32),
    }


def examples(partition: int, count: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """A client's own inputs, (count, 784), and labels, 0 ... 9."""
    rule = np.random.default_rng(99).normal(size=(784, 10))
    inputs = np.random.default_rng(partition).normal(size=(count, 784)).astype(np.float32)
    return inputs, (inputs @ rule).argmax(1)


def _forward(weights: dict, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    hidden = np.maximum(inputs @ weights["w1"] + weights["b1"], 0)
    logits = hidden @ weights["w2"] + weights["b2"]
    odds = np.exp(logits - logits.max(1, keepdims=True))
    return hidden, odds / odds.sum(1, keepdims=True)


def score(weights: dict, inputs: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """(cross entropy, share of right answers)."""
    odds = _forward(weights, inputs)[1]
    loss = -np.log(odds[range(len(labels)), labels] + 1e-9).mean()
    return float(loss), float((odds.argmax(1) == labels).mean())


def train(weights: dict, inputs: np.ndarray, labels: np.ndarray, steps: int = 40) -> None:
    """Steps of gradient descent on all examples, in place."""
    for _ in range(steps):
        hidden, error = _forward(weights, inputs)
        error[range(len(labels)), labels] -= 1
        error /= len(labels)
        back = (error @ weights["w2"].T) * (hidden > 0)
        for name, gradient in (
            ("w2", hidden.T @ error),
            ("b2", error.sum(0)),
            ("w1", inputs.T @ back),
            ("b1", back.sum(0)),
        ):
            weights[name] -= np.float32(0.2) * gradient.astype(np.float32)
