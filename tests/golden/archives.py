"""The golden archives: .dwz files of several arrays, as the command line makes them of a .npz.

What counts is the members: their names, order and bytes, none of them compressed. The records
around them are those of the zip library that is there.
"""

import subprocess
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from cases import INPUTS, bell, sparse

FOLDER = Path(__file__).parent / "archives"
MIN_ELEMENTS = 256
LONG = 70_001  # more than a chunk of 3lc and of gcomp, and no multiple of one


@dataclass(frozen=True)
class Archive:
    """All arrays by one spec; those of more than part_elements are cut (0: none is)."""

    spec: str
    part_elements: int = 0
    frames: int = 1  # the latest version among them
    superseded: bool = False  # read as ever, but encoders write frames of a later version now

    @property
    def path(self) -> Path:
        """The .dwz; the values that it stands for are in a .npz next to it."""
        spec = self.spec.replace(":", "_").replace(",", "_").replace("=", "-")
        cut = f".parts{self.part_elements}" if self.part_elements else ""
        frames = f".frames{self.frames}" if self.frames > 1 else ""
        return FOLDER / f"{spec}{cut}{frames}.dwz"


ARCHIVES = (
    Archive("3lc:s=1.75"),
    Archive("3lc:s=1.75", part_elements=30_000),
    Archive("gcomp", superseded=True),
    Archive("gcomp", frames=2, superseded=True),
    Archive("gcomp", frames=3),
    Archive("sbc:p=0.1"),
    Archive("bf16", part_elements=300, superseded=True),
    Archive("bf16", part_elements=300, frames=2),
)


def arrays_of(archive: Archive) -> dict[str, np.ndarray]:
    """A matrix in a folder, arrays that stay raw, one of float16, a long one."""
    long = sparse(LONG, 200)
    return {
        "layer/weight": bell(1000).reshape(10, 100),
        "bias": INPUTS["paper"](),
        "scalar": INPUTS["scalar"](),
        "none": INPUTS["empty"](),
        "half": INPUTS["halves"](),
        "long": long[:1000] if archive.spec == "bf16" else long,
    }


def encode(binary: str, archive: Archive) -> bytes:
    """The .dwz bytes that the command line makes."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "in.npz", Path(folder) / "out.dwz"
        np.savez(source, **arrays_of(archive))
        command = [binary, "encode", archive.spec, str(source), str(target)]
        command += ["--min-elements", str(MIN_ELEMENTS)]
        if archive.part_elements:
            command += ["--part-elements", str(archive.part_elements)]
        subprocess.run(command, check=True, capture_output=True)
        return target.read_bytes()


def decode(binary: str, path: Path) -> dict[str, np.ndarray]:
    """The arrays that the command line makes of a .dwz file."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "out.npz"
        subprocess.run([binary, "decode", str(path), str(target)], check=True, capture_output=True)
        with np.load(target) as found:
            return dict(found)


def members(path: Path) -> dict[str, bytes]:
    """The .dw files in an archive, in order; none may be compressed."""
    with zipfile.ZipFile(path) as archive:
        assert all(each.compress_type == zipfile.ZIP_STORED for each in archive.infolist())
        return {each.filename: archive.read(each) for each in archive.infolist()}
