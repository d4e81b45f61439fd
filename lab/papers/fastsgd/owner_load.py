"""How evenly owners share the keys of sparse data, and how far apart an owner's keys are.

    python -m lab.papers.fastsgd.owner_load rcv1.libsvm.xz [--ranks 4 8 16] [--batch 0.1]

`direct` assigns each key of a tensor to an owner. For a rank's rows of a random batch, the table
shows the largest owner's number of pairs divided by the mean, and the mean log2 of the distance
between neighbouring keys of an owner, which is about the bits that a key costs. It compares three
partitions: ranges of keys, a hash of each key, and the key partition of `direct`
(docs/reference/format.md, "Parts").
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from lab.command.program import main_of, make_parser
from lab.data.images import DataError
from lab.data.sparse_rows import SparseRows, load_sparse_rows

GOLDEN = 0x9E3779B97F4A7C15


def striped(keys: np.ndarray, ranks: int) -> tuple[np.ndarray, np.ndarray]:
    """For each key its owner in `direct`'s key partition, and its place there."""
    stripes = keys // ranks
    mixed = (stripes.astype(np.uint64) * np.uint64(GOLDEN)) >> np.uint64(32)
    begin = ((mixed * np.uint64(ranks)) >> np.uint64(32)).astype(np.int64)
    return (keys % ranks + begin) % ranks, stripes


def hashed(keys: np.ndarray, ranks: int) -> tuple[np.ndarray, np.ndarray]:
    """For each key an owner by its hash; the key stays what it is."""
    mixed = (keys.astype(np.uint64) + np.uint64(1)) * np.uint64(GOLDEN)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return ((mixed >> np.uint64(32)) % np.uint64(ranks)).astype(np.int64), keys


def ranges(keys: np.ndarray, ranks: int, features: int) -> tuple[np.ndarray, np.ndarray]:
    """For each key the range that contains it."""
    return keys * ranks // features, keys


def load(owners: np.ndarray, places: np.ndarray, ranks: int) -> tuple[float, float]:
    """The most pairs divided by the mean; the mean log2 of the distance between an owner's
    neighbouring keys."""
    pairs = np.bincount(owners, minlength=ranks)
    gaps = [np.diff(places[owners == owner]) for owner in range(ranks)]
    together = np.concatenate(gaps)
    return pairs.max() / pairs.mean(), float(np.log2(together).mean()) if len(together) else 0.0


def batch_keys(rows: SparseRows, count: int, seed: int) -> np.ndarray:
    """The keys of `count` rows drawn at random, each once, in order."""
    chosen = np.random.default_rng(seed).permutation(rows.count)[:count]
    return np.unique(
        np.concatenate([rows.columns[rows.begin[i] : rows.begin[i + 1]] for i in chosen])
    )


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = make_parser("lab.papers.fastsgd.owner_load", __doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--ranks", type=int, nargs="+", default=[4, 8, 16])
    parser.add_argument("--batch", type=float, default=0.1, help="rows of all ranks, a share")
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> None:
    """Prints the table."""
    rows = load_sparse_rows(options.data)
    print("| ranks | rows | pairs | ranges: most, log2 | hash: most, log2 | stripes: most, log2 |")
    print("|---|---|---|---|---|---|")
    for ranks in options.ranks:
        count = max(1, int(rows.count * options.batch / ranks))
        keys = batch_keys(rows, count, seed=0)
        ways = (ranges(keys, ranks, rows.features), hashed(keys, ranks), striped(keys, ranks))
        cells = [f"{most:.2f}, {far:.2f}" for most, far in (load(*way, ranks) for way in ways)]
        print(f"| {ranks} | {count} | {len(keys)} | " + " | ".join(cells) + " |")


main = main_of("lab.papers.fastsgd.owner_load", parse, run, DataError)


if __name__ == "__main__":
    sys.exit(main())
