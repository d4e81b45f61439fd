"""Sessions of all workers in one process, which average over the loopback."""

import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import deltawire
import numpy as np
from deltawire.torch.local.visible import codec_of

from lab.ranks.ports import free_port

_SECONDS = 600.0  # for a step: the machine may be busy
Arrays = dict[str, np.ndarray]
_Result = TypeVar("_Result")


class Sessions:
    """A `deltawire.Session` for each worker, in a thread of its own: codecs, residuals and bytes
    are those of ranks in processes. Use it as a context manager.

    Args:
        spec: pattern and codec; of "pulseloco" its codec.
        workers: how many.

    Raises:
        DeltawireError: a bad spec, or no port.
    """

    def __init__(self, spec: str, workers: int) -> None:
        self._pool = ThreadPoolExecutor(workers)
        spec, _ = codec_of(spec)
        address, token = f"127.0.0.1:{free_port()}", secrets.token_hex(16)

        def connect(rank: int) -> deltawire.Session:
            return deltawire.Session(
                spec,
                rank=rank,
                world_size=workers,
                address=address,
                token=token,
                timeout=_SECONDS,
                threads=1,
            )

        self._each = self._on_all(connect, range(workers))
        self._before = np.zeros(3, np.int64)  # what sessions of earlier runs have sent

    def __enter__(self) -> "Sessions":
        return self

    def __exit__(self, *unused) -> None:
        self._on_all(lambda session: session.close(), self._each)
        self._pool.shutdown()

    def average(self, arrays: Sequence[Arrays]) -> Arrays:
        """The mean of all workers' arrays, which are overwritten. Raises DeltawireError."""
        pairs = list(zip(self._each, arrays, strict=True))
        self._on_all(lambda pair: pair[0].all_reduce(pair[1]), pairs)
        return arrays[0]

    @property
    def sent(self) -> tuple[int, int, int]:
        """Bytes that all workers have sent, in all: on the links; of messages; and of the same
        messages as float32."""
        traffic, messages, raw = self._before + self._own()
        return int(traffic), int(messages), int(raw)

    def _own(self) -> np.ndarray:
        keys = ("traffic_bytes_sent", "total_bytes_sent", "total_raw_bytes")
        every = [session.metrics() for session in self._each]
        return np.array([sum(metrics[key] for metrics in every) for key in keys], np.int64)

    def save(self) -> dict:
        """The residuals of all workers, and what they have sent."""
        return {"sessions": [session.save() for session in self._each], "sent": list(self.sent)}

    def load(self, state: dict) -> None:
        """Restores what `save` returned, in sessions that have sent nothing."""
        for session, own in zip(self._each, state["sessions"], strict=True):
            session.load(own)
        self._before = np.array(state["sent"], np.int64) - self._own()

    def _on_all(self, work: Callable[..., _Result], items: Sequence) -> list[_Result]:
        return list(self._pool.map(work, items))
