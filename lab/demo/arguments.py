"""The demo's command line."""

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import NoReturn

from lab.data.images import DataError
from lab.demo import methods
from lab.demo.settings import Settings
from lab.demo.workloads import WORKLOADS
from lab.ranks.links import parse_link

_DESCRIPTION = """\
Trains LeNet5 (431,080 parameters), or another network, on an image set with several worker
processes over a thin link, once per method of exchanging gradients, and shows what each cost and
gained: a table here, and report.html and results.json with figures and all numbers. Rows whose
codec sends most of a gradient in later steps train without momentum; their names say so."""

_EXAMPLES = """\
examples:
  python -m lab.demo                            all rows over 100 Mbit/s: 9 minutes on 2 cores
  python -m lab.demo --methods fp32 3lc:s=1.5   two rows; any spec of codec or reducer is a method
  python -m lab.demo --repeats 3                three seeds a row: how much is luck? 3 times as long
  python -m lab.demo --methods fp32@10 sbc@10   weight updates after 10 local steps
  python -m lab.demo --methods fp32/adamw topk/adamw   AdamW instead of SGD
  python -m lab.demo --methods 'direct(conv*: 3lc, rest fp32)'   a codec for each tensor
  python -m lab.demo --link 1gbit --steps 100   a faster line, a shorter training
  python -m lab.demo --data mnist/              other idx files: train-images-idx3-ubyte[.gz] ...
  python -m lab.demo --network resnet20 --data cifar-10-batches-bin/ --batch 32 --steps 400
  python -m lab.demo --no-namespaces            a link in the transport, where real ones can be

`make demo ARGS="--link 1gbit"` passes options on. The learning rates were tuned with fp32 alone.
Exit status: 0 all rows ran and all ranks ended bit-equal, 1 something failed, 2 wrong usage,
130 interrupted."""


@dataclasses.dataclass(frozen=True)
class Request:
    """What the user asked for."""

    settings: Settings
    methods: list[methods.Method]
    out: Path
    data: Path


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, and exit 2 (argparse would print the usage before)."""
        print(f"demo: {message} (--help shows all options)", file=sys.stderr)
        raise SystemExit(2)


def parse(arguments: list[str]) -> Request:
    """Exits with status 2 and one line if the arguments are invalid."""
    parser = _make_parser()
    given = parser.parse_args(arguments)
    try:
        link = parse_link(given.link)
        chosen = [methods.find(name) for name in given.methods]
        data = given.data or WORKLOADS[given.network].default_data()
    except (ValueError, methods.UnknownMethod, DataError) as cause:
        parser.error(str(cause))
    if given.lr is None:
        given.lr = WORKLOADS[given.network].learning_rates[given.optimizer]
    _check(parser, given)
    names = {field.name for field in dataclasses.fields(Settings)}
    own = {name: value for name, value in vars(given).items() if name in names}
    own |= {"link": link.text, "bytes_per_second": link.bytes_per_second, "data": str(data)}
    settings = Settings(**own)
    return Request(settings, chosen, given.out, data)


def _make_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m lab.demo",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    _add_link(parser)
    _add_training(parser)
    add = parser.add_argument
    add("--out", type=Path, default=Path("out/demo"), metavar="DIR", help="default out/demo")
    add(
        "--timeout",
        type=float,
        default=60.0,
        metavar="S",
        help="seconds after which a hanging step is an error (default 60)",
    )
    return parser


def _add_link(parser: argparse.ArgumentParser) -> None:
    """Options for the methods and the link."""
    add = parser.add_argument
    known = ", ".join(methods.names()).replace("%", "%%")
    add("--methods", nargs="+", default=methods.names(), metavar="METHOD", help=f"default: {known}")
    add(
        "--link",
        default="100mbit",
        help="rate per rank and direction: 100mbit (default), 2.5gbit, 500kbit ..., or none",
    )
    add(
        "--namespaces",
        action=argparse.BooleanOptionalAction,
        help="run every row over real links, tc's tbf between network namespaces (default: where "
        "they can be made, which needs root and iproute2); otherwise the link is a token bucket in "
        "the transport, and plain DDP's row is modelled",
    )
    add("--ranks", type=int, default=4, metavar="N", help="worker processes (default 4)")


def _add_training(parser: argparse.ArgumentParser) -> None:
    """Options that hold for all rows, except that late ones have their own momentum and rate."""
    add = parser.add_argument
    add(
        "--network",
        choices=sorted(WORKLOADS),
        default="lenet5",
        help="lenet5 (default) on an MNIST-style set, or resnet20 (269,722 parameters) on CIFAR-10",
    )
    add("--steps", type=int, default=220, metavar="N", help="steps of each row (default 220)")
    add("--batch", type=int, default=64, metavar="N", help="images per step and rank (default 64)")
    add(
        "--seed",
        type=int,
        default=1,
        metavar="N",
        help="seed of parameters and image order (default 1)",
    )
    add(
        "--repeats",
        type=int,
        default=1,
        metavar="N",
        help="trainings of each row, with the seeds SEED, SEED + 1, ...; the table has medians and "
        "the spread (default 1)",
    )
    _add_optimizer(parser)
    add(
        "--clip",
        type=float,
        default=10.0,
        metavar="NORM",
        help="the mean gradient is scaled down to this norm; 0 is off (default 10)",
    )
    add(
        "--data",
        type=Path,
        metavar="DIR",
        help="for lenet5 idx files of an MNIST-style set (default: Fashion-MNIST, from Debian's "
        "package dataset-fashion-mnist); for resnet20 CIFAR-10's binary version (default: "
        "cifar-10-batches-bin in the folder that DELTAWIRE_DATA names)",
    )


def _add_optimizer(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    rates = "; ".join(
        f"{name}: "
        + ", ".join(f"{rate:g} with {kind}" for kind, rate in each.learning_rates.items())
        for name, each in WORKLOADS.items()
    )
    add(
        "--optimizer",
        choices=tuple(methods.OPTIMIZERS),
        default="sgd",
        help="of rows whose names don't end in one, as 3lc/adamw does (default sgd)",
    )
    add("--lr", type=float, help=f"of --optimizer, at the start (default {rates})")
    add("--momentum", type=float, default=0.9, metavar="M", help="of SGD (default 0.9)")
    add(
        "--same-optimizer",
        action="store_true",
        help="this optimizer as it is for every row; by default a row whose codec sends most of a "
        "gradient later (sbc, topk, onebit ...) has no momentum and a higher rate, because it "
        "diverges with momentum, and 3lc another second moment under adamw",
    )


def _check(parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    """Checks ranges. Each message names the value, what is allowed and why."""
    if not 2 <= given.ranks <= 64:
        parser.error(
            f"--ranks {given.ranks}: must be 2 ... 64; one rank has no other to exchange with"
        )
    for name, low, high in (
        *(("steps", 1, 10**6), ("batch", 1, 10**5)),
        *(("seed", 0, 2**32 - 1), ("repeats", 1, 100)),
    ):
        value = getattr(given, name)
        if not low <= value <= high:
            parser.error(f"--{name} {value}: must be {low} ... {high:,}")
    for name, high in (("lr", 100.0), ("timeout", 86_400.0)):
        value = getattr(given, name)
        if not 0 < value <= high:
            parser.error(f"--{name} {value:g}: must be above 0 and at most {high:,.0f}")
    if not 0 <= given.momentum < 1:
        parser.error(f"--momentum {given.momentum:g}: must be 0 or more and below 1")
    if not 0 <= given.clip <= 1e6:
        parser.error(f"--clip {given.clip:g}: must be 0 (off) ... 1,000,000")
    if given.namespaces and given.link == "none":
        parser.error("--namespaces with --link none: name the links' rate, e.g. --link 100mbit")
    repeated = {name for name in given.methods if given.methods.count(name) > 1}
    if repeated:
        parser.error(f"--methods: {', '.join(sorted(repeated))} given twice")
