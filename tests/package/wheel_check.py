"""What `make wheels` runs in each environment that has the wheel; by hand on any installation:

    python wheel_check.py examples/numpy_two_ranks.py

It needs nothing but the package. Without the program (a build with DELTAWIRE_CLI=OFF) it fails.
"""

import importlib.metadata
import importlib.util
import os
import secrets
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import deltawire
import numpy as np

TIMEOUT = 120  # seconds, of one command on a busy machine
PROGRAM = Path(sysconfig.get_path("scripts")) / "deltawire"


def program(*arguments: object, **options) -> subprocess.CompletedProcess:
    options = {"capture_output": True, "timeout": TIMEOUT, "check": False, **options}
    return subprocess.run([str(PROGRAM), *map(str, arguments)], **options)


def check_package() -> None:
    folder = Path(deltawire.__file__).parent
    assert folder.is_relative_to(sysconfig.get_path("platlib")), f"{folder} is not the wheel"
    assert deltawire.__version__ == importlib.metadata.version("deltawire")
    for name in ("_core.pyi", "py.typed"):
        assert (folder / name).is_file(), f"{name} is not in the wheel"


def check_round_trip() -> None:
    array = np.random.default_rng(0).standard_normal((300, 100)).astype(np.float32)
    for codec in deltawire.codecs():
        decoded = deltawire.decode(deltawire.encode(array, codec.name))
        assert decoded.shape == array.shape, codec.name
    assert np.array_equal(deltawire.decode(deltawire.encode(array, "zstd")), array)


def check_program() -> None:
    array = np.random.default_rng(1).standard_normal(10_000).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        given, encoded, restored = (Path(folder) / name for name in ("a.npy", "a.dw", "b.npy"))
        np.save(given, array)
        for arguments in (("encode", "zlib", given, encoded), ("decode", encoded, restored)):
            done = program(*arguments)
            assert done.returncode == 0, done.stderr
        assert np.array_equal(np.load(restored), array)
        archive = Path(folder) / "model.npz"
        np.savez_compressed(archive, layer=array)
        done = program("encode", "3lc", archive, Path(folder) / "model.dwz")
        assert done.returncode == 0, done.stderr
    version = program("--version").stdout.decode()
    assert deltawire.__version__ in version, version


def check_manners() -> None:
    """Exit codes, pipes and signals are the program's own."""
    assert program("no-such-command").returncode == 2
    assert program("inspect", "/no/such/file").returncode == 1
    reader, writer = os.pipe()
    os.close(reader)  # as `deltawire codecs | head -1` when head has gone
    done = program("codecs", stdout=writer, capture_output=False, stderr=subprocess.PIPE)
    os.close(writer)
    assert done.returncode == -signal.SIGPIPE, (done.returncode, done.stderr)
    # It waits for its standard input, and Ctrl-C ends it.
    waiting = subprocess.Popen(
        [str(PROGRAM), "encode", "fp32", "-", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        assert waiting.stdin is not None
        waiting.stdin.write(b"\x93NUMPY")
        waiting.stdin.flush()
        waiting.send_signal(signal.SIGINT)
        waiting.wait(TIMEOUT)
        assert waiting.returncode in (-signal.SIGINT, 128 + signal.SIGINT), waiting.returncode
    finally:
        waiting.kill()
        waiting.communicate()


def check_session(example: str) -> None:
    """Two ranks of the example learn the same weights, with fewer bytes."""
    # Bound and not listening: no other program gets the port by chance, and rank 0 takes it.
    with socket.socket() as kept:
        kept.bind(("127.0.0.1", 0))
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        texts = outputs_of_two(example, f"127.0.0.1:{kept.getsockname()[1]}")
    weights = [text.split("weights ")[1] for text in texts]
    assert weights[0] == weights[1], texts


def outputs_of_two(example: str, address: str) -> list[str]:
    environment = {**os.environ, "DELTAWIRE_TOKEN": secrets.token_hex(32)}
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "env": environment}
    commands = [[sys.executable, example, str(rank), address] for rank in range(2)]
    ranks = [subprocess.Popen(command, **how) for command in commands]
    try:
        texts = [rank.communicate(timeout=TIMEOUT)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], texts
    return texts


def check_extra() -> None:
    """Without PyTorch, its module says what to install."""
    if importlib.util.find_spec("torch") is not None:
        return
    try:
        import deltawire.torch  # noqa: F401
    except ImportError as error:
        assert "pip install 'torch>=" in str(error), error
    else:
        raise AssertionError("deltawire.torch was imported without PyTorch")


def main() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a script's background job ignores it
    check_package()
    check_round_trip()
    check_program()
    check_manners()
    check_session(sys.argv[1])
    check_extra()
    python = sys.version.split()[0]
    print(f"deltawire {deltawire.__version__}, Python {python}, NumPy {np.__version__}: good")


if __name__ == "__main__":
    main()
