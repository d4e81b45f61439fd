"""Earlier versions of the server's model, and patches from them."""

from collections.abc import Container

import numpy as np

from deltawire import arguments
from deltawire.rounds import lossless


class Bases:
    """The last versions that clients still have, as bases of patches to the newest one.

    Args:
        most: how many are kept.
        weights: "float32" or "bfloat16", as which the models are packed.

    Memory: for each base a packed model, and a patch once a client has needed it.
    Thread rule: one thread at a time.
    """

    def __init__(self, most: int, weights: str) -> None:
        arguments.check_count("bases", most)
        self._most, self._weights = most, weights
        self._models: dict[int, np.ndarray] = {}  # by version, the oldest first
        self._patches: dict[int, bytes] = {}  # by the version that they are made from

    def add(self, version: int, model: np.ndarray, in_use: Container[int]) -> None:
        """Adds the version that was the newest until now; drops those that nobody has."""
        self._patches.clear()
        self._models[version] = model
        self._models = {v: model for v, model in self._models.items() if v in in_use}
        while len(self._models) > self._most:
            del self._models[next(iter(self._models))]

    def patch(self, version: int, newest: np.ndarray) -> bytes | None:
        """The patch from a version to the newest, made once; None if that isn't kept."""
        if version not in self._patches and version in self._models:
            made = lossless.make(self._models[version], newest, self._weights)
            self._patches[version] = made
        return self._patches.get(version)
