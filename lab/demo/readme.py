"""Writes what `make demo` showed into README.md, so that nobody types a figure.

    python -m lab.demo.readme [out/demo/results.json]

Replaces the text between README's `demo` markers, and the plot that README shows. Refuses an
incomplete demo: rows that are missing or failed, or replicas that differ.
"""

import json
import re
import shlex
import sys
import textwrap
from pathlib import Path

from lab.command.paths import REPOSITORY
from lab.demo import methods
from lab.demo.output import write_whole
from lab.demo.plots import draw_plots
from lab.demo.table import accuracy_range, megabytes, ms_range, seeds_in_words
from lab.ranks.links import link_in_words

PLOT = Path("docs/figures/demo-accuracy-time.svg")
BLOCK = re.compile(r"(?<=<!-- demo -->\n).*?(?=<!-- /demo -->)", re.DOTALL)
_LINE = 118
_HEADS = (
    *("method", "accuracy", "ms per step", "sent per rank", "times smaller", "bits per value"),
    *("times faster", "than plain DDP"),
)


class NoDemo(Exception):
    """Results that README must not show: one line that says why."""


def block(results: dict) -> str:
    """README's paragraphs and table, from the content of results.json.

    Raises:
        NoDemo: rows are missing, failed, or ended with replicas that differ.
    """
    rows = results["rows"]
    if [row["method"] for row in rows] != methods.names():
        raise NoDemo(f"its rows are not those of `make demo`: {', '.join(methods.names())}")
    for row in rows:
        if row["failed"] is not None or not row["bit_equal"]:
            raise NoDemo(f"{row['method']}: {row['failed'] or 'the replicas differ'}")
    compute = [row["compute_ms"] for row in rows]
    paragraphs = [
        f"What `{_make(results['command'])}` showed on a machine with "
        f"{results['machine']['cores']} cores ({_settings(results['settings'])}; all rows with the "
        "same settings, which `results.json` lists, but where the row says otherwise):",
        "\n".join(f"| {' | '.join(cells)} |" for cells in _cells(rows)),
        f"Computing alone takes {min(compute):.0f} to {max(compute):.0f} ms of each step.",
        *(f"**Warning:** {warning}." for warning in results["warnings"]),
    ]
    return "\n\n".join(
        text if text.startswith("|") else textwrap.fill(text, _LINE, break_on_hyphens=False)
        for text in paragraphs
    )


def update(root: Path, results: dict) -> None:
    """Rewrites README.md and its plot under `root`.

    Raises:
        NoDemo: see `block`; or README.md has no markers.
    """
    page = root / "README.md"
    text = page.read_text(encoding="utf-8")
    if not BLOCK.search(text):
        raise NoDemo("README.md has no lines <!-- demo --> and <!-- /demo -->")
    fresh = block(results)
    write_whole(page, BLOCK.sub(lambda _: fresh + "\n", text))
    write_whole(root / PLOT, draw_plots(results["rows"])["accuracy-time"])


def _make(command: str) -> str:
    arguments = command.removeprefix("python -m lab.demo").strip()
    return f"make demo ARGS={shlex.quote(arguments)}" if arguments else "make demo"


def _settings(settings: dict) -> str:
    return (
        f"{settings['network']}, {settings['parameters']:,} parameters, {settings['ranks']} ranks "
        f"with batches of {settings['batch_per_rank']}, {settings['steps']} steps of "
        f"{settings['optimizer']}, {link_in_words(settings['link'])}, "
        f"{seeds_in_words(settings['seeds'])}"
    )


def _cells(rows: list[dict]) -> list[list[str]]:
    """The cells of the table, line by line; a spread stands in parentheses."""
    lines = [list(_HEADS), ["---"] * len(_HEADS)]
    for row in rows:
        low_high, fast_slow = "", ""
        if len(row["detail"]["repeats"]) > 1:
            low_high, fast_slow = f" ({accuracy_range(row)})", f" ({ms_range(row)})"
        is_plain = row["method"] == methods.PLAIN
        smaller = row["times_smaller"]
        lines.append(
            [
                row["detail"]["label"]
                if is_plain
                else f"`{row['method']}`{row['detail']['own_optimizer']}",
                f"{100 * row['accuracy']:.1f} %{low_high}",
                f"{row['ms_per_step']:.0f}{fast_slow}",
                f"{megabytes(row)} MB",
                f"{smaller:,.0f}" if smaller >= 10 else f"{smaller:.1f}",
                f"{row['bits_per_value']:.2f}",
                f"{row['times_faster']:.2f}",
                f"{row['detail']['times_faster_than_plain']:.2f}",
            ]
        )
    return lines


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
    print(f"README.md and {PLOT} show {source} now")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
