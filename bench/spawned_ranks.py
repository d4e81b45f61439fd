"""Ranks of a benchmark as processes of this machine."""

import argparse
import datetime
import multiprocessing
import os
import tempfile
from collections.abc import Callable
from typing import Any

import torch.distributed as dist


def result_of_ranks(run_rank: Callable, options: argparse.Namespace, seconds: int = 1800) -> Any:
    """Starts `run_rank(rank, options, results)` for each of `options.ranks`, in a Gloo process
    group with a timeout of so many seconds, and returns what rank 0 sends over `results`, a
    connection. Exits where a rank fails."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        processes = [
            context.Process(target=_run, args=(run_rank, rank, options, store, theirs, seconds))
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


def _run(run_rank, rank, options, store, results, seconds) -> None:
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=options.ranks,
        timeout=datetime.timedelta(seconds=seconds),
    )
    run_rank(rank, options, results)
