"""Which codecs have a second decoder, and which specs it takes."""

import pytest
from spec_codecs import BASELINES, CODECS, FOLDER, codec_of_spec
from spec_hashes import DecodeError


def test_every_folder_of_a_frozen_codec_has_a_decoder() -> None:
    folders = {path.parent.name for path in FOLDER.rglob("spec.md")} - BASELINES
    assert folders == {path.parent.name for path in FOLDER.rglob("*_decoder.py")}
    assert len({codec.codec_id for codec in CODECS.values()}) == len(folders)


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
