"""A parameter server's AdamW on one language model: held-out loss, with and without its rule.

    DELTAWIRE_DATA=... python -m lab.probes.parameter_server --seeds 1 2 3

One server and four workers, on the networks and batches of `lab.probes.local_rounds`, whose rows
with DDP (`--methods ddp ddp-3lc-rows --rounds 20`) these compare with.
"""

import argparse
import sys

from lab.command.markdown import table
from lab.command.program import main_of, make_parser
from lab.data.images import DataError
from lab.probes.local_rounds.__main__ import read_texts
from lab.probes.local_rounds.methods import SIZES
from lab.probes.local_rounds.training import Setting
from lab.probes.parameter_server.training import Row, run
from lab.ranks.launcher import Launcher, RanksFailed


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = make_parser("lab.probes.parameter_server", __doc__)
    parser.add_argument("--parameters", choices=SIZES, default="small", help="default small")
    parser.add_argument("--specs", nargs="+", default=["fp32", "3lc"], metavar="SPEC")
    parser.add_argument(
        "--momentum",
        nargs="+",
        choices=("rate", "optimizer"),
        default=["rate", "optimizer"],
        help="as of ParameterServer; default: both, but for fp32",
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[1], help="default 1")
    parser.add_argument("--steps", type=int, default=300, help="default 300")
    parser.add_argument("--workers", type=int, default=4, help="default 4")
    parser.add_argument("--lr", type=float, help="AdamW's highest; default: the size's")
    given = parser.parse_args(arguments)
    if given.steps < 1 or given.workers < 1:
        parser.error("--steps and --workers are at least 1")
    return given


def main_run(given: argparse.Namespace) -> None:
    """Trains all rows, and prints the table."""
    size = SIZES[given.parameters]
    rate = size.learning_rate if given.lr is None else given.lr
    setting = Setting(size, given.workers, 1, given.steps, rate)
    rows = [
        Row(spec, momentum, seed)
        for spec in given.specs
        for momentum in given.momentum[: 1 if spec == "fp32" else None]
        for seed in given.seeds
    ]
    lines = []
    with Launcher(run, 1 + setting.workers) as ranks:
        ranks.start(rows, setting, read_texts(setting))
        for row, found in zip(rows, ranks.messages(), strict=True):
            sent = (f"{found[name] / 1e6:.2f}" for name in ("push_bytes", "pull_bytes"))
            lines.append(
                (f"`{row.spec}`", row.momentum, str(row.seed), f"{found['loss']:.3f}", *sent)
            )
            print(f"{row}: loss {found['loss']:.3f}", file=sys.stderr, flush=True)
    head = ("spec", "momentum", "seed", "loss", "MB a worker pushed", "MB pulled")
    print(table(head, lines, left=2))


main = main_of("lab.probes.parameter_server", parse, main_run, DataError, RanksFailed)


if __name__ == "__main__":
    sys.exit(main())
