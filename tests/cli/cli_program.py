"""The program under test, run as a user runs it."""

import contextlib
import os
import pty
import subprocess
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("DELTAWIRE_BIN", ROOT / "build" / "release" / "deltawire"))
TIMEOUT = 60  # seconds
USAGE, FAILURE, INTERRUPTED = 2, 1, 130  # exit statuses

if not BINARY.is_file():
    raise FileNotFoundError(
        f"{BINARY} is not there: build it with 'cmake --build --preset release', or name another "
        "in DELTAWIRE_BIN"
    )


def run(*arguments: object, stdin: bytes = b"") -> subprocess.CompletedProcess:
    command = [str(BINARY), *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=TIMEOUT, check=False)


def must_run(*arguments: object, stdin: bytes = b"") -> bytes:
    """Runs the program, which must succeed; returns its standard output."""
    done = run(*arguments, stdin=stdin)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def shown_on_terminal(*arguments: object) -> str:
    """Runs the program with a terminal as standard error; returns what it writes there."""
    ours, theirs = pty.openpty()
    shown = bytearray()
    with (
        os.fdopen(ours, "rb", buffering=0) as terminal,
        subprocess.Popen(
            [str(BINARY), *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=theirs
        ) as program,
    ):
        os.close(theirs)
        with contextlib.suppress(OSError):  # EIO: the program has closed it, and all is read
            while piece := terminal.read(4096):
                shown += piece
        assert program.wait(TIMEOUT) == 0, shown.decode()
    return shown.decode()


def encode(folder: Path, spec: str, values: np.ndarray, *options: object) -> Path:
    """Encodes `values` with the program; returns the .dw file."""
    source, target = folder / "values.npy", folder / "values.dw"
    np.save(source, values)
    must_run("encode", spec, source, target, "--force", *options)
    return target


def decode(folder: Path, source: Path) -> np.ndarray:
    target = folder / "decoded.npy"
    must_run("decode", source, target, "--force")
    return np.load(target)


def assert_refused(status: int, words: list[str], *arguments: object, stdin: bytes = b"") -> None:
    """Checks that the program exits with `status` and prints one line that contains `words`."""
    done = run(*arguments, stdin=stdin)
    said = done.stderr.decode()
    assert done.returncode == status, said or "no message"
    assert done.stdout == b""
    assert said.startswith("deltawire: ") and said.endswith("\n") and said.count("\n") == 1, said
    for word in words:
        assert word in said, f"{word!r} is not in: {said}"
