"""Counts the instructions that kernels for aarch64 execute, by qemu-user: a stand-in for times
where no such machine is at hand. Counts are no times: instructions differ in what they cost.

usage: python bench/instructions.py [--build FOLDER] [--count N] [CODEC...]

FOLDER (build/aarch64) is made by the preset aarch64 with -DDELTAWIRE_BENCH=ON; its target `repeat`
is what runs. Prints a Markdown table: instructions a value in the kernels of the codec, the
reference's and NEON's, both as the compiler made them.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent


@dataclass(frozen=True)
class Case:
    """What is coded."""

    folder: str  # the kernels' namespaces
    spec: str
    input: str
    work: tuple[str, ...]


CODING = ("encode", "decode", "accumulate")
PAIRS = ("encode-pairs", "decode-pairs")
CASES = (
    Case("gcomp", "gcomp:cut=0", "normal", CODING),
    Case("gcomp", "gcomp", "weights", CODING),
    Case("gcomp", "gcomp:cut=0", "random", ("encode", "decode")),
    Case("fastsgd", "fastsgd", "laplace", CODING),
    Case("fastsgd", "fastsgd", "clicks", PAIRS),
    Case("threelc", "3lc", "normal", ("encode", "decode")),
    Case("threelc", "3lc:runs=off", "uniform", ("encode", "decode")),
    Case("sparse", "sbc:p=1%", "laplace", ("encode",)),
    Case("int8", "int8", "normal", ("encode", "decode")),
)


def built_plugin(folder: Path) -> Path:
    """The plugin, compiled for this machine."""
    plugin = folder / "libinstructions.so"
    source = HERE / "instructions" / "plugin.c"
    command = ["cc", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-o", plugin, source]
    subprocess.run(command, check=True)
    return plugin


@dataclass(frozen=True)
class Counter:
    """Counts by qemu-user; `sysroot` has the program's libraries."""

    plugin: Path
    program: Path
    sysroot: Path
    count: int

    def _executed(self, case: Case, target: str, work: str, times: int) -> int:
        namespaces = [
            f"{len(case.folder)}{case.folder}{len(each)}{each}" for each in ("neon", "reference")
        ]
        chosen = ",".join([str(self.plugin), *(f"in={each}" for each in namespaces)])
        command = [
            "qemu-aarch64",
            "-L",
            self.sysroot,
            "-plugin",
            chosen,
            "-d",
            "plugin",
            self.program,
        ]
        task = [case.spec, target, case.input, str(self.count), work, str(times)]
        done = subprocess.run([*command, *task], capture_output=True, text=True, timeout=600)
        found = re.search(r"^instructions (\d+)$", done.stderr, re.MULTILINE)
        if done.returncode != 0 or found is None:
            raise SystemExit(f"instructions: {' '.join(task)}: {done.stderr.strip()}")
        return int(found.group(1))

    def each_value(self, case: Case, target: str, work: str) -> float:
        """Instructions a value: what one time more adds."""
        twice, once = (self._executed(case, target, work, times) for times in (2, 1))
        return (twice - once) / self.count


def main(arguments: list[str]) -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "aarch64")
    parser.add_argument("--count", type=int, default=262144, help="values (262144)")
    parser.add_argument("codecs", nargs="*", metavar="CODEC", help="folders of src/codecs; all")
    options = parser.parse_args(arguments)
    program = options.build / "bench" / "repeat"
    if not program.is_file():
        parser.error(
            f"no {program}: cmake --preset aarch64 -DDELTAWIRE_BENCH=ON, then build repeat"
        )
    print("| codec, input | work | reference | NEON | ratio |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        plugin = built_plugin(Path(folder))
        sysroot = ROOT / "build" / "aarch64-sysroot"
        counter = Counter(plugin, program, sysroot, options.count)
        for case in CASES:
            if options.codecs and case.folder not in options.codecs:
                continue
            for work in case.work:
                plain, neon = (
                    counter.each_value(case, each, work) for each in ("reference", "neon")
                )
                name = f"`{case.spec}`, {case.input}"
                row = f"| {name} | {work} | {plain:.1f} | {neon:.1f} | {plain / neon:.1f} |"
                print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
