"""Copies the working tree, and runs commands in the copies that can all be ended at once."""

import contextlib
import filecmp
import os
import shutil
import signal
import subprocess
import threading
from pathlib import Path

TAIL_LINES = 30


class Stopped(Exception):
    """A command was ended by Ctrl-C or by `Shell.stop`."""


class Shell:
    """Runs commands, each in a separate session, so that all its processes can be ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen] = set()
        self._stopping = False

    def run(self, command: str, folder: Path, seconds: float) -> tuple[int | None, str]:
        """Runs a command; returns its exit status, None after `seconds`, and its output."""
        environment = os.environ | {
            "CCACHE_BASEDIR": str(folder),
            "CCACHE_NOHASHDIR": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        if shutil.which("ccache"):
            environment |= dict.fromkeys(
                ("CMAKE_C_COMPILER_LAUNCHER", "CMAKE_CXX_COMPILER_LAUNCHER"), "ccache"
            )
        with self._lock:
            if self._stopping:
                raise Stopped
            process = subprocess.Popen(
                ["bash", "-c", command],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._running.add(process)
        timed_out = False
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            timed_out = True
            _kill(process)
            output, _ = process.communicate()
        except BaseException:  # Ctrl-C
            _kill(process)
            raise
        finally:
            with self._lock:
                self._running.discard(process)
        if self._stopping:
            raise Stopped
        return None if timed_out else process.returncode, output.decode(errors="replace")

    def stop(self) -> None:
        """Ends every command; later ones raise Stopped."""
        with self._lock:
            self._stopping = True
            for process in self._running:
                _kill(process)


def _kill(process: subprocess.Popen) -> None:
    """Kills a whole session, not a process group: ninja puts each compiler in its own group."""
    subprocess.run(["pkill", "-KILL", "-s", str(process.pid)], check=False)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def git(root: Path, *arguments: str) -> str:
    """What a git command prints; raises CalledProcessError if it fails."""
    done = subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True)
    return done.stdout.decode(errors="replace")


def refresh(root: Path, copy: Path) -> None:
    """Makes `copy` hold the files of the working tree `root` that git tracks or does not ignore, as
    they are now. Equal files keep their times, so that a second build is short."""
    copy.mkdir(parents=True, exist_ok=True)
    listed = git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    wanted = {name for name in listed.split("\0") if name and (root / name).is_file()}
    manifest = copy / ".copied"
    before = set(manifest.read_text().split("\0")) if manifest.is_file() else set()
    for name in before - wanted:
        (copy / name).unlink(missing_ok=True)
    for name in wanted:
        source, target = root / name, copy / name
        if target.is_file() and filecmp.cmp(source, target, shallow=False):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    manifest.write_text("\0".join(sorted(wanted)))
    environment = copy / ".venv"
    if (root / ".venv").exists() and not environment.exists():
        environment.symlink_to((root / ".venv").resolve())


def tail(output: str) -> str:
    """The last lines of a command's output, indented."""
    return "\n".join("    " + line for line in output.splitlines()[-TAIL_LINES:])
