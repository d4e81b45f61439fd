"""Writes the golden files anew. Only with a reason, which belongs into commit and changelog:

python tests/golden/update.py --reason "format 0: ..." [--binary build/release/deltawire]

A file whose bytes are those of a library's version stays where it decodes to the same values.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from cases import INPUTS, cases  # noqa: E402

FOLDER = Path(__file__).parent / "files"


def encode(binary: str, spec: str, values: np.ndarray, least: int) -> bytes:
    """The .dw bytes that the command line makes of `values`."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "in.npy", Path(folder) / "out.dw"
        np.save(source, values)
        command = [binary, "encode", spec, str(source), str(target), "--min-elements", str(least)]
        subprocess.run(command, check=True, capture_output=True)
        return target.read_bytes()


def decode(binary: str, data: bytes) -> np.ndarray:
    """The values that the command line makes of .dw bytes."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "in.dw", Path(folder) / "out.npy"
        source.write_bytes(data)
        subprocess.run(
            [binary, "decode", str(source), str(target)], check=True, capture_output=True
        )
        return np.load(target)


def holds(binary: str, path: Path, values: np.ndarray) -> bool:
    """Whether the file there still decodes to these values."""
    try:
        return decode(binary, path.read_bytes()).tobytes() == values.tobytes()
    except subprocess.CalledProcessError:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--reason", required=True, help="why the files may change")
    parser.add_argument("--binary", default="build/release/deltawire")
    arguments = parser.parse_args()
    made = {}  # all of them before the first old one goes: a failure leaves the folder as it was
    for case in cases(arguments.binary):
        data = encode(arguments.binary, case.spec, INPUTS[case.input](), case.min_elements)
        values = decode(arguments.binary, data)
        old = FOLDER / f"{case.stem}.dw"
        if case.follows_library and old.exists() and holds(arguments.binary, old, values):
            data = old.read_bytes()
        made[case.stem] = (data, values)
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.iterdir():
        old.unlink()
    for stem, (data, values) in made.items():
        (FOLDER / f"{stem}.dw").write_bytes(data)
        np.savez_compressed(FOLDER / f"{stem}.npz", values=values)
    print(f"{len(made)} golden files written: {arguments.reason}")


if __name__ == "__main__":
    main()
