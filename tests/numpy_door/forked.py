"""Processes as ranks, without a process group; the fork server forks them."""

import multiprocessing
import traceback

CONTEXT = multiprocessing.get_context("forkserver")  # tests/fork_server.py says why
SECONDS = 60.0


def _run(worker, rank, world_size, pipe, args):
    try:
        pipe.send((worker(rank, world_size, *args), None))
    except BaseException as error:
        traceback.print_exc()
        pipe.send((None, f"{type(error).__name__}: {error}"))


class Forked:
    """`worker(rank, world_size, *args)` in a process for each rank."""

    def __init__(self, worker, world_size, *args):
        self._pipes, self._processes = [], []
        for rank in range(world_size):
            ours, theirs = CONTEXT.Pipe(duplex=False)
            process = CONTEXT.Process(
                target=_run, args=(worker, rank, world_size, theirs, args), daemon=True
            )
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def value(self, rank):
        """What a rank returned; fails with what it raised."""
        try:
            assert self._pipes[rank].poll(SECONDS), f"rank {rank} said nothing"
            value, problem = self._pipes[rank].recv()
        except EOFError:
            raise AssertionError(f"rank {rank} died") from None
        finally:
            if not self._processes[rank].is_alive():
                self._processes[rank].join()
        assert problem is None, f"rank {rank}: {problem}"
        return value

    def values(self):
        """Of all ranks, in their order."""
        found = [self.value(rank) for rank in range(len(self._processes))]
        for process in self._processes:
            process.join(SECONDS)
        return found
