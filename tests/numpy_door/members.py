"""Members of elastic sessions, in processes of their own, for tests."""

import contextlib
import fcntl
import multiprocessing
import os
import signal
from collections.abc import Iterator

import deltawire
from ports import kept_port

CONTEXT = multiprocessing.get_context("forkserver")  # tests/fork_server.py says why
SECRET = "a secret of the tests, of no special length"
LIMIT = 90.0  # seconds, on a busy machine
# Of a pipe: a test reads one member's while others say on; one that can say no more takes no step.
PIPE_BYTES = 1 << 20


def settings(**changed) -> dict:
    return {
        "elastic": True,
        "token": SECRET,
        "timeout": 20.0,
        "connect_timeout": 40.0,
        "arrival_timeout": 20.0,
    } | changed


def session_of(rank, world_size, address: str, spec="3lc", **changed) -> deltawire.Session:
    """A member's; without a rank it joins."""
    place = {} if rank is None else {"rank": rank, "world_size": world_size}
    return deltawire.Session(spec, **place, address=address, **settings(**changed))


class Process:
    """A member; `script(say, *arguments)` in a process of its own."""

    def __init__(self, script, *arguments) -> None:
        self._pipe, theirs = CONTEXT.Pipe(duplex=False)
        fcntl.fcntl(theirs.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self.process = CONTEXT.Process(target=script, args=(theirs.send, *arguments), daemon=True)
        self.process.start()
        theirs.close()

    def next(self):
        """The next thing that it said; None once it has ended."""
        assert self._pipe.poll(LIMIT), "a member says nothing"
        try:
            return self._pipe.recv()
        except EOFError:
            return None

    def until(self, kind: str):
        while (found := self.next()) is not None:
            if found[0] == kind:
                return found
        raise AssertionError(f"a member ended without {kind}")

    def rest(self) -> list:
        found = []
        while (said := self.next()) is not None:
            found.append(said)
        return found

    def kill(self, number: int = signal.SIGKILL) -> None:
        os.kill(self.process.pid, number)


@contextlib.contextmanager
def members(script, world_size: int, *arguments) -> Iterator[tuple[list[Process], str]]:
    """`script(say, rank, world_size, address, *arguments)` in a process for each rank."""
    with kept_port() as port, contextlib.ExitStack() as started:
        address = f"127.0.0.1:{port}"
        all_of_them = []
        started.callback(lambda: [each.process.kill() for each in all_of_them])
        for rank in range(world_size):
            all_of_them.append(Process(script, rank, world_size, address, *arguments))
        yield all_of_them, address
