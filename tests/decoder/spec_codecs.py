"""Frozen codecs, found by the names of their folders' decoders; what is the same for all."""

import importlib
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
from spec_codec import Codec, Coded
from spec_hashes import require

FOLDER = Path(__file__).resolve().parents[2] / "src" / "codecs"
BASELINES = {path.parent.name for path in FOLDER.glob("baselines/*/spec.md")}  # not frozen


def load(path: Path) -> ModuleType:
    """Import a codec's decoder."""
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    return importlib.import_module(path.stem)


MODULES = [load(path) for path in sorted(FOLDER.rglob("*_decoder.py"))]
CODECS: dict[str, Codec] = {module.CODEC.name: module.CODEC for module in MODULES}


def codec_of_spec(spec: bytes) -> tuple[Codec, dict[str, str]]:
    """Find the codec of a canonical spec string, and its parameters; anything else is refused."""
    name, colon, rest = spec.decode().partition(":")
    require(name in CODECS, "Corrupt", f"no codec has the name of {spec!r}")
    codec = CODECS[name]
    given = dict(pair.partition("=")[::2] for pair in rest.split(",")) if colon else {}
    canonical = ":".join([name] + [",".join(map("=".join, given.items()))] * bool(colon))
    due = [key for key in codec.parameters if key in given or key not in codec.later]
    as_listed = list(given) == due and canonical == spec.decode()
    is_default = any(given.get(key) == default for key, default in codec.later.items())
    require(as_listed and not is_default, "Corrupt", f"not a canonical codec spec: {spec!r}")
    given = {**codec.later, **given}
    for key, check in codec.parameters.items():
        check(given[key])
    codec.check(given)
    return codec.chosen_by(given), given


def decode_coded(codec: Codec, coded: Coded) -> np.ndarray:
    """Decode a segment; what this allocates is bounded by its number of chunks."""
    codec = codec.chosen_by(coded.parameters)
    for scalar in coded.scalars[codec.scalars :]:
        require(scalar == 0, "Corrupt", "a scalar that the codec has not")
    if not codec.chunk_elements:
        return codec.decode(coded)
    expected = -(-coded.count // codec.chunk_elements)
    require(len(coded.chunks) == expected, "Corrupt", "number of chunks of a segment")
    values, end = [], 0
    for number, chunk in enumerate(coded.chunks):
        first = number * codec.chunk_elements
        last = min(coded.count, first + codec.chunk_elements)
        end += len(chunk)
        if codec.width:
            require(end >= codec.width * last, "Truncated", "chunk end below its elements")
            require(end <= codec.width * last, "Corrupt", "chunk end beyond its elements")
        values.append(codec.decode(replace(coded, chunks=[chunk], count=last - first)))
    return np.concatenate(values)
