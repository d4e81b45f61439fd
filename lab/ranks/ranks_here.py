"""Ranks as processes of this machine, and what rank 0 has to say."""

import multiprocessing
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from lab.data.images import DataError

_LAST_SECONDS = 20  # for ranks to end in peace


def rows_of_ranks(
    train: Callable[..., None], ranks: int, count: int, arguments: tuple
) -> Iterator[Any]:
    """Starts the ranks; the rows that rank 0 sends, as they come.

    Args:
        train: a rank's life, called with its number, the arguments, a folder that all share, and a
            pipe for rows.
        ranks: how many.
        count: of rows.
        arguments: the same for all; they are pickled.

    Raises:
        DataError: a rank ended early; its own message is on stderr.
    """
    context = multiprocessing.get_context("forkserver")
    ours, theirs = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory(prefix="deltawire-lab-") as folder:
        processes = [
            context.Process(target=train, args=(rank, *arguments, folder, theirs), daemon=True)
            for rank in range(ranks)
        ]
        for process in processes:
            process.start()
        theirs.close()
        try:
            for _ in range(count):
                yield ours.recv()
        except EOFError:  # every rank has closed its end
            raise DataError("a rank has ended early; see its message above") from None
        finally:
            for process in processes:
                process.join(_LAST_SECONDS)
                process.kill()
