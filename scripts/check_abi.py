#!/usr/bin/env python3
"""Whether programs that were compiled against the last release's deltawire.h still run.

Compares the header's functions and types with tests/package/deltawire_c_abi.xml. Additions are
shown, and pass; changes and removals fail. Needs a C compiler and libabigail.

usage: scripts/check_abi.py            exit status 1 if anything was changed or removed
       scripts/check_abi.py --update   writes that file: at a release, or with a new
                                       DELTAWIRE_ABI_VERSION
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
BASELINE = ROOT / "tests" / "package" / "deltawire_c_abi.xml"
DECLARATION = re.compile(r"^DELTAWIRE_API ([^;{]*?)(\w+)(\([^;]*\));", re.MULTILINE)
# It does not cover the numbers in enums: src/c/call.cc checks them against those of result.h.


def stubs(header: str) -> str:
    """A C library whose functions, the header's, do nothing: only their types are compared."""
    found = DECLARATION.findall(header)
    if not found:
        raise ValueError("no DELTAWIRE_API function in the header")
    bodies = {"void": ""}
    return '#include "deltawire/deltawire.h"\n' + "".join(
        f"{result}{name}{arguments} {{ {bodies.get(result.strip(), 'return 0;')} }}\n"
        for result, name, arguments in found
    )


def describe(include: Path, folder: Path, out: Path) -> None:
    """Writes the interface of the header in include/deltawire to `out`, in abidw's format."""
    source, library = folder / "stubs.c", folder / "deltawire_c.so"
    source.write_text(stubs((include / "deltawire" / "deltawire.h").read_text()))
    flags = ("-std=c99", "-g", "-fPIC", "-shared", f"-I{include}")
    subprocess.run(["cc", *flags, "-o", library, source], check=True)
    options = ("--no-corpus-path", "--no-comp-dir-path", "--no-show-locs")
    subprocess.run(["abidw", *options, "--out-file", out, library], check=True)


def compare(include: Path, baseline: Path) -> int:
    """0 where programs still run, 1 where they don't; abidiff prints what changed."""
    with tempfile.TemporaryDirectory() as folder:
        now = Path(folder) / "now.xml"
        describe(include, Path(folder), now)
        # Its exit status is not 0 for any change that the options don't filter out.
        status = subprocess.run(
            ["abidiff", "--no-added-syms", baseline, now], check=False
        ).returncode
        if status == 0:
            subprocess.run(["abidiff", baseline, now], check=False)
            return 0
    print(
        "deltawire.h is not what it was: keep what programs were compiled against, or raise "
        "DELTAWIRE_ABI_VERSION"
    )
    return 1


def main(arguments: list[str]) -> int:
    """Compares, or updates."""
    if arguments == ["--update"]:
        with tempfile.TemporaryDirectory() as folder:
            describe(ROOT / "include", Path(folder), BASELINE)
        return 0
    return compare(ROOT / "include", BASELINE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
