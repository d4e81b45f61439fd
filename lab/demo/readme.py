"""Writes the results of `make demo` into README.md and docs/results/training.md, so that no figure
is typed by hand.

    python -m lab.demo.readme [out/demo/results.json]

Replaces the text between these pages' markers, and README's plot: README gets the headline and
some rows, the other page all rows and columns. Refuses a demo on a busy machine, which has no
times, and an incomplete one: rows that are missing or failed, or replicas that differ.
"""

import json
import re
import shlex
import sys
from pathlib import Path

from lab.command.files import write_whole
from lab.command.markdown import table, wrapped
from lab.command.paths import REPOSITORY
from lab.demo import methods
from lab.demo.plots import draw_plots
from lab.demo.report import best_of, times, times_as_fast
from lab.demo.table import accuracy_range, megabytes, ms_range, seeds_in_words
from lab.ranks.links import link_in_words

PLOT = Path("docs/figures/demo-accuracy-time.svg")
# README's rows, and what each does for its reader.
SHORT = {
    "fp32": "no compression; the baseline",
    "bf16": "half the bits of each value",
    "gcomp": "drops the bits that the optimizer cannot see",
    "3lc:s=1.00": "three values, the rest in later steps: the first choice on slow links",
    "sbc:p=1%@10": "ten local steps, then 1 % of the weight changes: for very slow links",
    "fastsgd:tau=auto": "keys and logarithms of values: for sparse gradients",
    "fp32/adamw": "AdamW without compression",
    "3lc/adamw": "3lc under AdamW, with `optimizer=`",
}
_SHORT_HEADS = (
    *("method", "what it does", "sent per rank", "times fewer bytes", "accuracy", "ms per step"),
)
_HEADS = (
    *("method", "accuracy", "ms per step", "sent per rank", "times smaller", "bits per value"),
    "times faster",
)


class NoDemo(Exception):
    """Results that must not be published; the message is one line that says why."""


def block_in(marker: str) -> re.Pattern:
    """What stands between the lines of a marker."""
    return re.compile(rf"(?<=<!-- {marker} -->\n).*?(?=<!-- /{marker} -->)", re.DOTALL)


def headline_block(results: dict) -> str:
    """README's first sentence: the row of the report's headline.

    Raises:
        NoDemo: see `short_block`; or no row is as accurate as fp32.
    """
    rows, settings = _whole(results), results["settings"]
    best = best_of(rows)
    if best is None:
        raise NoDemo("no row that sends less is as accurate as fp32")
    base, plain = (
        next(row for row in rows if row["method"] == name) for name in (methods.BASE, methods.PLAIN)
    )
    return wrapped(
        f"**{times(best['times_smaller'])} times fewer bytes, steps {times_as_fast(best)} plain "
        f"DDP's{_note(plain)}, {100 * best['accuracy']:.1f} % accuracy where `fp32` has "
        f"{100 * base['accuracy']:.1f} %**: {settings['network']} on Fashion-MNIST, "
        f"{settings['ranks']} workers, {link_in_words(settings['link'])}, codec "
        f"`{best['method'].partition(':')[0]}`."
    )


def short_block(results: dict) -> str:
    """README's paragraphs and table, from what results.json holds.

    Raises:
        NoDemo: rows are missing, failed, or ended with replicas that differ.
    """
    rows = {row["method"]: row for row in _whole(results)}
    plain = rows[methods.PLAIN]
    cells = [
        [
            f"`{name}`",
            does,
            _sent(rows[name]),
            times(rows[name]["times_smaller"]),
            *_accuracy_and_ms(rows[name]),
        ]
        for name, does in SHORT.items()
    ]
    accuracy, ms = _accuracy_and_ms(plain)
    return _joined(
        f"What {_run(results)}:",
        table(_SHORT_HEADS, cells),
        f"PyTorch's own DDP{_note(plain)} takes {ms} ms per step and reaches {accuracy}. "
        f"{_computing(results['rows'])}",
    )


def block(results: dict) -> str:
    """The paragraphs and the table of docs/results/training.md: all rows.

    Raises:
        NoDemo: see `short_block`.
    """
    rows = _whole(results)
    return _joined(
        f"What {_run(results, 'all rows with the same settings, unless the row says otherwise')}:",
        table(_HEADS, _cells(rows)),
        _computing(rows),
    )


WRITERS = {
    ("README.md", "headline"): headline_block,
    ("README.md", "demo"): short_block,
    ("docs/results/training.md", "demo"): block,
}

PAGES = tuple(dict.fromkeys(page for page, _ in WRITERS))


def update(root: Path, results: dict) -> None:
    """Rewrites both pages, and README's plot, under `root`.

    Raises:
        NoDemo: see `short_block`; or a page has no markers.
    """
    fresh: dict[str, str] = {}
    for (name, marker), write in WRITERS.items():
        text = fresh.get(name) or (root / name).read_text(encoding="utf-8")
        if not block_in(marker).search(text):
            raise NoDemo(f"{name} has no lines <!-- {marker} --> and <!-- /{marker} -->")
        shown = write(results)
        fresh[name] = block_in(marker).sub(lambda _, shown=shown: shown + "\n", text)
    for name, text in fresh.items():
        write_whole(root / name, text)
    write_whole(root / PLOT, draw_plots(results["rows"])["accuracy-time"])


def _whole(results: dict) -> list[dict]:
    """The rows of a complete demo with times; raises NoDemo for another one."""
    rows = results["rows"]
    if busy := [each for each in results["warnings"] if "busy" in each]:
        raise NoDemo(busy[0])
    if [row["method"] for row in rows] != methods.names():
        raise NoDemo(f"its rows are not those of `make demo`: {', '.join(methods.names())}")
    for row in rows:
        if row["failed"] is not None or not row["bit_equal"]:
            raise NoDemo(f"{row['method']}: {row['failed'] or 'the replicas differ'}")
    return rows


def _joined(before: str, rows: str, after: str) -> str:
    """Wrapped paragraphs around a table."""
    return "\n\n".join((wrapped(before), rows, wrapped(after)))


def _run(results: dict, more: str = "") -> str:
    """The command, the machine and the settings."""
    settings = "; ".join(filter(None, (_settings(results["settings"]), more)))
    cores = results["machine"]["cores"]
    arguments = results["command"].removeprefix("python -m lab.demo").strip()
    make = f"make demo ARGS={shlex.quote(arguments)}" if arguments else "make demo"
    return f"`{make}` showed on a machine with {cores} cores ({settings})"


def _settings(settings: dict) -> str:
    return (
        f"{settings['network']}, {settings['parameters']:,} parameters, {settings['ranks']} ranks "
        f"with batches of {settings['batch_per_rank']}, {settings['steps']} steps of "
        f"{settings['optimizer']}, {link_in_words(settings['link'])}, "
        f"{seeds_in_words(settings['seeds'])}"
    )


def _computing(rows: list[dict]) -> str:
    compute = [row["compute_ms"] for row in rows]
    return f"Computing alone takes {min(compute):.0f} to {max(compute):.0f} ms of each step."


def _note(plain: dict) -> str:
    """ " (modelled)", or nothing where it ran over the same links as all rows."""
    note = plain["detail"]["label"].removeprefix("plain DDP")
    return note if "modelled" in note else ""


def _sent(row: dict) -> str:
    return f"{megabytes(row)} MB"


def _accuracy_and_ms(row: dict) -> tuple[str, str]:
    """Accuracy and milliseconds, with the spread in brackets if there are several seeds."""
    low_high, fast_slow = "", ""
    if len(row["detail"]["repeats"]) > 1:
        low_high, fast_slow = f" ({accuracy_range(row)})", f" ({ms_range(row)})"
    return f"{100 * row['accuracy']:.1f} %{low_high}", f"{row['ms_per_step']:.0f}{fast_slow}"


def _cells(rows: list[dict]) -> list[list[str]]:
    return [
        [
            row["detail"]["label"]
            if row["method"] == methods.PLAIN
            else f"`{row['method']}`{row['detail']['own_optimizer']}",
            *_accuracy_and_ms(row),
            _sent(row),
            times(row["times_smaller"]),
            f"{row['bits_per_value']:.2f}",
            f"{row['times_faster']:.2f}",
        ]
        for row in rows
    ]


def main(arguments: list[str]) -> int:
    """Returns the exit status."""
    if len(arguments) > 1 or any(text.startswith("-") for text in arguments):
        print(__doc__, file=sys.stderr)
        return 2
    source = Path(arguments[0] if arguments else "out/demo/results.json")
    try:
        update(REPOSITORY, json.loads(source.read_text(encoding="utf-8")))
    except (OSError, ValueError, NoDemo) as cause:
        print(f"readme: {source}: {cause}", file=sys.stderr)
        return 1
    print(f"{', '.join(PAGES)} and {PLOT} show {source} now")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
