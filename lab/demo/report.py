"""The demo's report: one HTML file with everything in it."""

import base64
import math
from html import escape
from pathlib import Path

from lab.demo.methods import BASE, PLAIN
from lab.demo.table import columns, seeds_in_words
from lab.ranks.links import link_in_words

_STYLE = Path(__file__).with_name("report.css")
_CURVES = (
    "A row's number stands at the end of its curve. The accuracy axis shows the curves from a "
    "quarter of the steps on. A band spans several trainings, from the least to the most accurate."
)
_PLOTS = (
    ("accuracy-time", "Test accuracy against seconds of training", _CURVES),
    ("accuracy-bytes", "Test accuracy against megabytes sent per rank", _CURVES),
    (
        "step-parts",
        "Computing, encoding, waiting and decoding in a step, by method",
        "A wide bar is a step: computing, as measured without an exchange, and the rest, which is "
        "the part of the exchange that computing does not hide, the update of the weights, and "
        "waiting for processor cores. The narrow bar is all the work of the exchange. It ends with "
        "the step; the part of it below 'computing alone' is hidden.",
    ),
)

# In points of accuracy. Among rows that train like fp32, three seeds of a row were up to 1.1 points
# apart; the next best row is 2.3 points below fp32 (docs/results/training.md, "Seeds").
_SEEDS_APART = 0.015


def render_report(results: dict, plots: dict[str, str]) -> str:
    """The whole page.

    Args:
        results: what results.json holds.
        plots: name -> SVG text, see lab.demo.plots.
    """
    settings = results["settings"]
    lead = (
        f"{settings['network']}, {settings['parameters']:,} parameters, trained by "
        f"{settings['ranks']} processes for {settings['steps']} steps over "
        f"{link_in_words(settings['link'])}; all else equal, but where a row says otherwise; "
        f"{seeds_in_words(settings['seeds'])}."
    )
    title = headline(results["rows"])
    body = [
        "<header><p class='brand'>deltawire <span>train over thin wires</span></p>",
        f"<h1>{escape(title)}</h1><p class='lead'>{escape(lead)}</p></header>",
        *(f"<p class='failed'>{escape(warning)}</p>" for warning in results["warnings"]),
        _table(results["rows"]),
        "<div class='plots'>",
        *(_plot(plots[name], text, caption) for name, text, caption in _PLOTS if name in plots),
        "</div>",
        _facts("Settings of all rows that don't say otherwise", settings),
        _facts("What the numbers mean", results["definitions"]),
        _facts("Machine and versions", results["machine"] | results["versions"]),
        f"<h2>Made by</h2><pre>{escape(results['command'])}</pre>",
        f"<footer>{escape(results['finished'])}; the same numbers are in results.json</footer>",
    ]
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>deltawire demo</title><style>{_STYLE.read_text()}</style></head>\n<body><main>\n"
        + "\n".join(body)
        + "\n</main></body></html>\n"
    )


def headline(rows: list[dict]) -> str:
    """One sentence about `best_of` the rows: bytes against fp32, time against plain DDP, which is
    left out where the machine was busy."""
    best = best_of(rows)
    if best is None:
        return "What each way to exchange gradients costs and gains"
    plain, base = (
        next((row for row in rows if row["method"] == name), None) for name in (PLAIN, BASE)
    )
    pace = ""
    if best["times_faster"] is not None:
        pace = f" {times_as_fast(best)} {(plain or base)['detail']['label']},"
    accuracies = f"{100 * best['accuracy']:.1f} % against {100 * base['accuracy']:.1f} %"
    return (
        f"{best['detail']['label']}: {times(best['times_smaller'])} times fewer bytes than fp32,"
        f"{pace} and as accurate as fp32 up to what another seed changes ({accuracies})"
    )


def best_of(rows: list[dict]) -> dict | None:
    """The row that sends least among those that are as accurate as fp32, as far as the seeds can
    tell: medians of n trainings may be _SEEDS_APART / sqrt(n) apart."""
    base = next((row for row in rows if row["method"] == BASE and row["failed"] is None), None)
    others = [
        row
        for row in rows
        if base is not None
        and row["failed"] is None
        and row["times_smaller"] > 1.5
        and row["accuracy"]
        >= base["accuracy"]
        - _SEEDS_APART
        / math.sqrt(min(len(row["detail"]["repeats"]), len(base["detail"]["repeats"])))
    ]
    return max(others, key=lambda row: row["times_smaller"], default=None)


def times(ratio: float) -> str:
    """ "1,703", "8.4"."""
    return f"{ratio:,.{0 if ratio >= 10 else 1}f}"


def times_as_fast(row: dict) -> str:
    """ "2.8 times as fast as"."""
    return f"{row['times_faster']:.2g} times as fast as"


def _table(rows: list[dict]) -> str:
    shown = columns(rows)
    heads = "".join(f"<th>{escape(head)}</th>" for head in shown)
    lines = []
    for row in rows:
        if row["failed"] is not None:
            label = escape(row["detail"]["label"])
            reason = f"failed: {escape(row['failed'])}"
            lines.append(
                f"<tr><td>{label}</td><td class='failed' "
                f"colspan='{len(shown) - 1}'>{reason}</td></tr>"
            )
            continue
        cells = "".join(f"<td>{escape(text(row))}</td>" for text in shown.values())
        lines.append(f"<tr>{cells}</tr>")
    head = f"<thead><tr>{heads}</tr></thead>"
    return f"<div class='wide'><table>{head}<tbody>{''.join(lines)}</tbody></table></div>"


def _plot(svg: str, description: str, caption: str) -> str:
    """The plot as a separate image, so that the ids of plots can't clash."""
    data = base64.b64encode(svg.encode()).decode()
    return (
        f"<figure><img alt='{escape(description)}' src='data:image/svg+xml;base64,{data}'>"
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _facts(title: str, facts: dict) -> str:
    entries = "".join(
        f"<dt>{escape(name.replace('_', ' '))}</dt><dd>{escape(_in_words(value))}</dd>"
        for name, value in facts.items()
    )
    return f"<h2>{escape(title)}</h2><dl>{entries}</dl>"


def _in_words(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_in_words, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
