"""Small traces, as docs/reference/traces.md says."""

import json
from pathlib import Path

import numpy as np


def gradient(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def make_trace(folder: Path) -> list[dict[str, np.ndarray]]:
    """Three steps of a matrix, a bias without a gradient in the second, and an embedding's pairs.

    Returns each step's gradients by name, all dense; the matrix has a significance.
    """
    shapes = {"fc.weight": [40, 30], "fc.bias": [40], "emb.weight": [500, 8]}
    tensors = [{"name": name, "shape": shape} for name, shape in shapes.items()]
    tensors[2]["pairs"] = True
    steps, dense = [], []
    for number, step in enumerate((10, 20, 400)):
        place = f"{step:06d}"
        (folder / place).mkdir(parents=True)
        weight, bias = gradient(number, (40, 30)), gradient(number + 10, (40,))
        np.save(folder / place / "0.npy", weight)
        np.save(folder / place / "0.significance.npy", np.full((40, 30), 1e3, np.float32))
        np.save(folder / place / "1.npy", bias)
        random = np.random.default_rng(step)
        keys = np.sort(random.choice(4000, 100, replace=False)).astype(np.int64)
        values = random.standard_normal(100).astype(np.float32)
        np.save(folder / place / "2.npy", values)
        np.save(folder / place / "2.keys.npy", keys)
        entries = [
            {"values": f"{place}/0.npy", "significance": f"{place}/0.significance.npy"},
            {"values": f"{place}/1.npy"},
            {"values": f"{place}/2.npy", "keys": f"{place}/2.keys.npy"},
        ]
        embedding = np.zeros(4000, np.float32)
        embedding[keys] = values
        dense.append({"fc.weight": weight.ravel(), "fc.bias": bias, "emb.weight": embedding})
        if number == 1:
            entries[1] = None
            del dense[-1]["fc.bias"]
        steps.append({"step": step, "tensors": entries})
    contents = {"format": 1, "model": "toy", "optimizer": "SGD, lr=0.1", "command": "python toy.py"}
    contents |= {"tensors": tensors, "steps": steps}
    (folder / "trace.json").write_text(json.dumps(contents))
    return dense
