"""Each codec's decoder on the parts that it brings along, made by hand from its spec.md."""

import numpy as np
import pytest
from spec_codec import Coded
from spec_codecs import BASELINES, CODECS, FOLDER, MODULES, codec_of_spec, decode_coded, refusal
from spec_hashes import DecodeError

GOOD = [(m.CODEC, name, *case) for m in MODULES for name, case in getattr(m, "GOOD", {}).items()]
REFUSED = [(m.CODEC, name, *c) for m in MODULES for name, c in getattr(m, "REFUSED", {}).items()]


def ids(rows: list[tuple]) -> list[str]:
    return [f"{codec.name}: {name}" for codec, name, *_ in rows]


def test_every_folder_of_a_frozen_codec_has_a_decoder() -> None:
    folders = {path.parent.name for path in FOLDER.rglob("spec.md")} - BASELINES
    assert folders == {path.parent.name for path in FOLDER.rglob("*_decoder.py")}
    assert len({codec.codec_id for codec in CODECS.values()}) == len(folders)


@pytest.mark.parametrize(("codec", "_name", "coded", "expected"), GOOD, ids=ids(GOOD))
def test_good(codec, _name: str, coded: Coded, expected: list[float]) -> None:
    assert decode_coded(codec, coded).tobytes() == np.array(expected, "<f4").tobytes()


@pytest.mark.parametrize(("codec", "_name", "coded", "kind"), REFUSED, ids=ids(REFUSED))
def test_refused(codec, _name: str, coded: Coded, kind: str) -> None:
    assert refusal(codec, coded) == kind


@pytest.mark.parametrize(
    "spec",
    [b"fp32:", b"3lc", b"3lc:s=1.5", b"3lc:s=1.50,mode=auto,runs=on", b"fp32:s=1", b"4lc"]
    + [b"3lc:mode=auto,s=1,runs=on", b"3lc:s=2,mode=auto,runs=on", b"3lc:s=1,mode=auto,runs=no"]
    + [b"3lc:s=0.4,mode=auto,runs=on", b"3lc:s=1,mode=auto,runs=on,pull=0.4"]
    + [b"3lc:s=1,mode=auto,runs=on,pull=s", b"3lc:s=1,mode=auto,runs=on,pull=2"]
    + [b"sbc:p=0.01,pull=0.03,positions=auto", b"sbc:p=0.01,pull=p", b"sbc:p=0.01,pull=1"]
    + [b"3lc:s=1,s=1,mode=auto,runs=on", b"gcomp:cut=6,lossless=on"],
)
def test_specs_that_are_not_canonical(spec: bytes) -> None:
    with pytest.raises(DecodeError):
        codec_of_spec(spec)
