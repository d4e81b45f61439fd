"""Ranks of a benchmark as processes of this machine."""

import argparse
import multiprocessing
import os
import tempfile
from collections.abc import Callable
from typing import Any


def result_of_ranks(run_rank: Callable, options: argparse.Namespace) -> Any:
    """Starts `run_rank(rank, options, store, results)` for each of `options.ranks`, and returns
    what rank 0 sends over `results`, a connection. `store` is a path for torch's FileStore. Exits
    where a rank fails."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        processes = [
            context.Process(target=run_rank, args=(rank, options, store, theirs))
            for rank in range(options.ranks)
        ]
        for process in processes:
            process.start()
        theirs.close()
        try:
            result = ours.recv()
        except EOFError:
            raise SystemExit("a rank failed; its message is above") from None
        for process in processes:
            process.join()
    return result
