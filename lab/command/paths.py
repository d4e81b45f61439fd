"""Where the repository and the `deltawire` program are, and what programs say."""

import os
import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
DELTAWIRE = Path(os.environ.get("DELTAWIRE_BIN", REPOSITORY / "build" / "release" / "deltawire"))


class CommandFailed(Exception):
    """What a program said on standard error."""


def said_by(*command: object, given: bytes = b"") -> str:
    """A program's standard output, in the repository's folder. Raises CommandFailed."""
    words = list(map(str, command))
    done = subprocess.run(words, cwd=REPOSITORY, input=given, capture_output=True, check=False)
    if done.returncode != 0:
        raise CommandFailed(done.stderr.decode(errors="replace").strip())
    return done.stdout.decode()
