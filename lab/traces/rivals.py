"""Other software as methods of the corpus's ranking: libraries that compress bytes, and the
arithmetic of PyTorch's communication hooks for one rank."""

import importlib
import importlib.metadata
import zlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import (
    _orthogonalize,
    _should_compress,
)

from lab.traces.methods import Entry, Layout, Tensor, from_raw, raw_bytes

_LEAST_RATE = 2  # PowerSGDState.min_compression_rate
_SEED = 0  # PowerSGDState.random_seed


class Bytes:
    """A lossless library that gets a step's values in their own dtype, as few calls as there are
    dtypes: all tensors one after the other."""

    def __init__(
        self, compress: Callable[[bytes, str], bytes], expand: Callable[[bytes, str], bytes]
    ) -> None:
        self._compress, self._expand = compress, expand

    def encode(self, tensors: Sequence[Tensor]) -> bytes:
        """What the library makes of the bytes; all tensors of a message have one dtype."""
        data = b"".join(raw_bytes(each) for each in tensors)
        return self._compress(data, tensors[0].layout.dtype)

    def decode(self, message: bytes, layouts: Sequence[Layout]) -> list[np.ndarray]:
        """Cut where the layouts say."""
        data, found, at = self._expand(message, layouts[0].dtype), [], 0
        for layout in layouts:
            size = layout.count * (2 if layout.dtype == "bfloat16" else 4)
            found.append(from_raw(data[at : at + size], layout))
            at += size
        return found


class Cast:
    """fp16_compress_hook and bf16_compress_hook: all values in 16 bits."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype

    def encode(self, tensors: Sequence[Tensor]) -> bytes:
        """The bucket in 16 bits."""
        bucket = torch.cat([torch.from_numpy(each.values).flatten() for each in tensors])
        return bucket.to(self._dtype).view(torch.uint8).numpy().tobytes()

    def decode(self, message: bytes, layouts: Sequence[Layout]) -> list[np.ndarray]:
        """Widened again."""
        bucket = torch.frombuffer(bytearray(message), dtype=self._dtype).to(torch.float32)
        parts = bucket.split([each.count for each in layouts])
        return [part.numpy().reshape(each.shape) for part, each in zip(parts, layouts, strict=True)]


class PowerSGD:
    """powerSGD_hook, with its defaults (warm start, error feedback) from the first step on: a
    message has the uncompressed tensors, then all P, then all Q, as float32."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._chance = np.random.RandomState(_SEED)  # as in PowerSGDState
        self._factors: dict[str, torch.Tensor] = {}
        self._errors: dict[str, torch.Tensor] = {}

    def encode(self, tensors: Sequence[Tensor]) -> bytes:
        """Both factors of each matrix that is worth it."""
        plain, ps, qs = [], [], []
        if not self._factors:
            self._draw([each.layout for each in tensors])
        for tensor in tensors:
            name, x = tensor.layout.name, torch.from_numpy(tensor.values)
            if name not in self._factors:
                plain.append(x.flatten())
                continue
            matrix = x.reshape(x.shape[0], -1) + self._errors.get(name, 0)
            q = self._factors[name]
            _orthogonalize(q)
            p = torch.bmm(matrix[None], q)
            _orthogonalize(p)
            q = torch.bmm(matrix[None].transpose(1, 2), p)
            self._factors[name] = q.clone()
            self._errors[name] = matrix - torch.bmm(p, q.transpose(1, 2))[0]
            ps.append(p.flatten())
            qs.append(q.flatten())
        return torch.cat([*plain, *ps, *qs]).numpy().tobytes()

    def decode(self, message: bytes, layouts: Sequence[Layout]) -> list[np.ndarray]:
        """The products."""
        values = torch.frombuffer(bytearray(message), dtype=torch.float32)
        plain, factored = [], []
        for layout in layouts:
            (plain if self._sides(layout) is None else factored).append(layout)
        sizes = [each.count for each in plain]
        for side in (0, 1):
            sizes += [self._sides(each)[side] * self._sides(each)[2] for each in factored]
        parts = iter(values.split(sizes))
        found = {each.name: next(parts).reshape(each.shape) for each in plain}
        ps = [next(parts).reshape(self._sides(each)[0], -1) for each in factored]
        for each, p in zip(factored, ps, strict=True):
            q = next(parts).reshape(self._sides(each)[1], -1)
            found[each.name] = (p @ q.T).reshape(each.shape)
        return [found[each.name].numpy() for each in layouts]

    def _sides(self, layout: Layout) -> tuple[int, int, int] | None:
        """Rows, columns and rank of a tensor that is sent as factors."""
        rows = layout.shape[0] if layout.shape else 1
        columns = layout.count // rows
        rank = min(rows, columns, self._rank)
        worth, _, _ = _should_compress(rows, columns, rank, _LEAST_RATE)
        return (rows, columns, rank) if worth else None

    def _draw(self, layouts: Sequence[Layout]) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(self._chance.randint(1_000_000_000)))
            for layout in layouts:
                sides = self._sides(layout)
                if sides is not None:
                    _, columns, rank = sides
                    self._factors[layout.name] = torch.randn(1, columns, rank)


def _zstd(level: int) -> Callable[[], Bytes]:
    library = importlib.import_module("zstandard")
    packer, unpacker = library.ZstdCompressor(level=level), library.ZstdDecompressor()
    return lambda: Bytes(
        lambda data, _: packer.compress(data), lambda data, _: unpacker.decompress(data)
    )


def _zipnn() -> Callable[[], Bytes]:
    library = importlib.import_module("zipnn")
    known = {
        dtype: library.ZipNN(bytearray_dtype=dtype, threads=1) for dtype in ("float32", "bfloat16")
    }
    return lambda: Bytes(
        lambda data, dtype: bytes(known[dtype].compress(bytearray(data))),
        lambda data, dtype: bytes(known[dtype].decompress(data)),
    )


def _version(package: str) -> str:
    return f"{package} {importlib.metadata.version(package)}"


def rivals() -> Iterator[Entry | str]:
    """The rows; in place of one whose package isn't installed, the package's name."""
    for level in (1, 6):
        yield Entry(
            f"zlib -{level}",
            f"zlib {zlib.ZLIB_RUNTIME_VERSION}",
            lambda level=level: Bytes(
                lambda data, _: zlib.compress(data, level), lambda data, _: zlib.decompress(data)
            ),
            lossless=True,
        )
    try:
        for level in (3, 19):
            yield Entry(f"zstd -{level}", _version("zstandard"), _zstd(level), lossless=True)
    except ImportError:
        yield "zstandard"
    try:
        yield Entry("ZipNN", _version("zipnn"), _zipnn(), lossless=True)
    except ImportError:
        yield "zipnn"
    torch_version = f"PyTorch {torch.__version__.split('+')[0]}"
    yield Entry("fp16_compress_hook", torch_version, lambda: Cast(torch.float16))
    yield Entry("bf16_compress_hook", torch_version, lambda: Cast(torch.bfloat16))
    for rank in (1, 2, 4):
        yield Entry(f"powerSGD_hook, rank {rank}", torch_version, lambda rank=rank: PowerSGD(rank))
