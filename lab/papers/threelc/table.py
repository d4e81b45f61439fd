"""Rows as Markdown."""

_HEAD = (
    "workers, link",
    "method",
    "ms a step (deciles)",
    "times `fp32`'s speed",
    "push, KB",
    "pull, KB",
    "server sends, receives, KB",
    "encodes a step",
)


def table_of(rows: list[dict]) -> str:
    """A line for each row; its speed is relative to fp32 with servers, in the same cluster and over
    the same link."""
    lines = ["| " + " | ".join(_HEAD) + " |", "|---|---|" + "---:|" * (len(_HEAD) - 2)]
    plain = {(row["cluster"], row["link"]): row["ms"] for row in rows if row["method"] == "`fp32`"}
    lines.extend(_line(row, plain.get((row["cluster"], row["link"]))) for row in rows)
    return "\n".join(lines)


def _line(row: dict, plain: float | None) -> str:
    if row["direct"]:
        sent, received = row["worker_sent"], row["worker_received"]
        traffic = (f"{_kb(sent)} sent", f"{_kb(received)} received", "-", "-")
    else:
        traffic = (
            _kb(row["push_bytes"]),
            _kb(row["pull_bytes"]),
            f"{_kb(row['server_sent'])}, {_kb(row['server_received'])}",
            f"{row['encodes']:.0f}",
        )
    cells = (
        f"{row['cluster']}, {row['link']}",
        row["method"],
        f"{row['ms']:.0f} ({row['low_ms']:.0f}–{row['high_ms']:.0f})",
        "-" if plain is None else f"{plain / row['ms']:.2f}",
        *traffic,
    )
    return "| " + " | ".join(cells) + " |"


def _kb(count: float) -> str:
    return f"{count / 1e3:.3g}" if count < 1e5 else f"{count / 1e3:,.0f}"
