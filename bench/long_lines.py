"""Lines between sites: what `Session.all_reduce` makes of their rate, by delay, loss and congestion
control.

    PYTHONPATH=build/release/python python bench/long_lines.py        # root; about an hour
    PYTHONPATH=build/release/python python bench/long_lines.py --round-trips 200 --losses 1 \
        --controls cubic --megabytes 2

Two ranks are in two network namespaces, with a line between them that `delay_line`
(bench/long_lines) plays: packets take half of the round trip each way, a share of them is lost, and
there is a rate. `--controls` is what the kernel of both starts with: `cubic` and `bbr` leave it so
(`DELTAWIRE_BBR=off`); `asked` starts with cubic, and deltawire asks for BBR where the line is long.
`--streams`: how many TCP streams carry a pair's messages, `auto` as deltawire chooses. With
`--per-site 2` four ranks share the line, two at each end. Prints a Markdown table: the bytes that a
site sends over the line, as a share of its rate, the delays of the exchange included; the median of
`--steps` exchanges after the first.
"""

import argparse
import os
import secrets
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ADDRESS = ("10.77.0.1", "10.77.0.2")
PORT = 7000
DELAY_LINE = Path(__file__).parent.parent / "build/release/bench/delay_line"


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"'{' '.join(command)}' failed: {done.stderr.strip()}")


@contextmanager
def line(program: Path, control: str, words: list[str]) -> Iterator[list[str]]:
    """The names of two namespaces with a line between them; `words`: delay_line's last ones."""
    names = [f"deltawire-{os.getpid()}-{site}" for site in "ab"]
    carrier = None
    try:
        for name in names:
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        carrier = subprocess.Popen([program, *names, *words], stdout=subprocess.PIPE, text=True)
        if carrier.stdout is None or carrier.stdout.readline().strip() != "ready":
            raise SystemExit("delay_line didn't start; its message is above")
        for name, own, other in zip(names, ADDRESS, reversed(ADDRESS), strict=True):
            run("ip", "-n", name, "address", "add", own, "peer", other, "dev", "line")
            run("ip", "-n", name, "link", "set", "line", "up", "txqueuelen", "2000")
            start = "bbr" if control == "bbr" else "cubic"
            run("ip", "-n", name, "route", "replace", other, "dev", "line", "congctl", start)
        yield names
    finally:
        if carrier is not None:
            carrier.kill()
            carrier.wait()
        for name in names:
            with suppress(SystemExit):
                run("ip", "netns", "delete", name)


def cell(given: argparse.Namespace, names: list[str]) -> str:
    """Starts all ranks, and returns rank 0's figures."""
    words = ["--token", secrets.token_hex(16), "--spec", given.spec]
    for name in ("megabytes", "steps", "per_site", "encryption"):
        words += [f"--{name.replace('_', '-')}", str(getattr(given, name))]
    sites = [name for name in names for _ in range(given.per_site)]
    ranks = []
    for rank, name in enumerate(sites):
        command = ["ip", "netns", "exec", name, sys.executable, __file__, "--rank", str(rank)]
        ranks.append(subprocess.Popen([*command, *words], stdout=subprocess.PIPE, text=True))
    said = [process.communicate()[0] for process in ranks]
    if any(process.returncode for process in ranks):
        raise SystemExit("a rank failed; its message is above")
    bytes_sent, seconds = (float(word) for word in said[0].split())
    # A rank sends as much to each other rank; the line carries what goes to the other site.
    bytes_over_line = given.per_site * bytes_sent * given.per_site / (2 * given.per_site - 1)
    share = 8 * bytes_over_line / seconds / (given.rate * 1e6)
    return f"{share:.0%}" if share > 0.1 else f"{share:.1%}"


def run_rank(given: argparse.Namespace) -> None:
    """Prints the bytes that the rank sends in a step, and its seconds."""
    import deltawire
    import numpy as np

    values = np.full(round(given.megabytes * 250_000), given.rank, np.float32)
    times, sent = [], 0
    with deltawire.Session(
        given.spec,
        rank=given.rank,
        world_size=2 * given.per_site,
        address=f"{ADDRESS[0]}:{PORT}",
        token=given.token,
        connect_timeout=60,
        timeout=600,
        encryption=given.encryption,
    ) as session:
        for _ in range(1 + given.steps):
            tensors = {"w": values.copy()}
            start = time.perf_counter()
            sent = session.all_reduce(tensors).bytes_sent
            times.append(time.perf_counter() - start)
            assert np.all(tensors["w"] == (2 * given.per_site - 1) / 2)
    print(sent, statistics.median(times[1:] or times))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--round-trips", type=float, nargs="+", default=[1, 20, 100, 200])
    parser.add_argument("--losses", type=float, nargs="+", default=[0, 0.1, 1], help="percent")
    controls = ("cubic", "bbr", "asked")
    parser.add_argument("--controls", nargs="+", choices=controls, default=controls)
    parser.add_argument("--streams", nargs="+", default=["auto"], help="auto, or 1 to 8")
    parser.add_argument("--per-site", type=int, default=1, help="ranks at each end; default 1")
    parser.add_argument("--rate", type=float, default=100, help="Mbit/s; default 100")
    parser.add_argument("--megabytes", type=float, default=16, help="of float32; default 16")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--spec", default="direct(fp32)")
    parser.add_argument("--encryption", choices=("off", "required"), default="off")
    parser.add_argument("--delay-line", type=Path, default=DELAY_LINE, help="the built program")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--token", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank is not None:
        run_rank(given)
        return
    kinds = [(control, streams) for control in given.controls for streams in given.streams]
    ranks = 2 * given.per_site
    print(f"{given.spec}, {given.megabytes:g} MB, {ranks} ranks, {given.rate:g} Mbit/s\n")
    print("| round trip, loss | " + " | ".join(f"{c}, {s}" for c, s in kinds) + " |")
    print("|---|" + "---:|" * len(kinds))
    for round_trip in given.round_trips:
        for loss in given.losses:
            cells = []
            for control, streams in kinds:
                os.environ["DELTAWIRE_BBR"] = "on" if control == "asked" else "off"
                os.environ["DELTAWIRE_STREAMS"] = streams
                words = [str(number) for number in (round_trip / 2, loss / 100, given.rate)]
                with line(given.delay_line, control, words) as names:
                    cells.append(cell(given, names))
            print(f"| {round_trip:g} ms, {loss:g} % | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
