"""Adds golden files of cases that have none yet: of a new codec, say.

A file that is there is never written again: format 1 is final (docs/reference/format.md,
"What may never change"), and so is each line of format1.sha256.

python tests/golden/update.py [--binary build/release/deltawire]
"""

import argparse
import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import archives  # noqa: E402
import messages  # noqa: E402
import states  # noqa: E402
from cases import INPUTS, Case, cases  # noqa: E402

HERE = Path(__file__).parent
FOLDER = HERE / "files"
LIST = HERE / "format1.sha256"


def line_of(path: Path) -> str:
    """A file's line in the list, as sha256sum writes it."""
    return f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(HERE)}"


def save(path: Path, values: np.ndarray) -> None:
    """A .npy; of two bytes without a meaning, one of bfloat16, as ml_dtypes writes it."""
    if values.dtype != np.dtype("V2"):
        np.save(path, values)
        return
    with path.open("wb") as file:
        head = {"descr": "<V2", "fortran_order": False, "shape": values.shape}
        np.lib.format.write_array_header_1_0(file, head)
        file.write(values.tobytes())


def encode(binary: str, case: Case) -> bytes:
    """The .dw bytes that the command line makes of a case."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "in.npy", Path(folder) / "out.dw"
        save(source, INPUTS[case.input]())
        command = [binary, "encode", case.spec, str(source), str(target)]
        command += ["--min-elements", str(case.min_elements)]
        if case.part_elements:
            command += ["--part-elements", str(case.part_elements)]
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--binary", default="build/release/deltawire")
    arguments = parser.parse_args()
    added: dict[Path, bytes] = {}
    for case in cases(arguments.binary):
        path = FOLDER / f"{case.stem}.dw"
        if path.exists():
            continue
        added[path] = encode(arguments.binary, case)
        added[path.with_suffix(".npz")] = messages.packed(
            values=decode(arguments.binary, added[path])
        )
    added |= messages.missing(arguments.binary)
    added |= states.missing()
    for archive in archives.ARCHIVES:
        if not archive.path.exists():
            added[archive.path] = archives.encode(arguments.binary, archive)
    for path, data in added.items():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    for path in [path for path in added if path.suffix == ".dwz"]:
        values = path.with_suffix(".npz")
        added[values] = messages.packed(**archives.decode(arguments.binary, path))
        values.write_bytes(added[values])
    with LIST.open("a") as file:
        file.writelines(line_of(path) + "\n" for path in sorted(added))
    print(f"{len(added)} golden files added")


if __name__ == "__main__":
    main()
