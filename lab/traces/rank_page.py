"""The page of the corpus's ranking, made from its JSON alone."""

import statistics
from collections.abc import Callable, Iterable, Iterator

from lab.command.markdown import table, wrapped
from lab.traces.methods import OURS

_NETWORKS = {
    "lenet5": "LeNet5",
    "resnet20": "ResNet-20",
    "charlstm": "character LSTM",
    "lstm": "word LSTM",
    "transformer": "transformer",
}
Row = dict


class _Rows:
    """The measured rows, and their means over groups of traces."""

    def __init__(self, content: dict) -> None:
        self._groups = {each["folder"]: each["group"] for each in content["streams"]}
        self._networks = {each["folder"]: each["network"] for each in content["streams"]}
        self.all: list[Row] = content["rows"]

    def mean(self, row: Row, group: str, figure: str) -> float | None:
        """Over the group's traces; None if it wasn't measured."""
        found = [
            figures[figure]
            for name, figures in row["figures"].items()
            if self._groups[name] == group
        ]
        return statistics.fmean(found) if found else None

    def of_network(self, row: Row, network: str, figure: str) -> float | None:
        """Of the network's consecutive steps."""
        for name, figures in row["figures"].items():
            if self._groups[name] == "row" and self._networks[name] == network:
                return figures[figure]
        return None

    def sorted(self, lossless: bool, group: str) -> list[Row]:
        """Those rows, by their bits of single messages."""
        chosen = [row for row in self.all if row["lossless"] == lossless]
        return sorted(chosen, key=lambda row: (self.mean(row, group, "bits") or 0, row["name"]))


def text_of(content: dict) -> str:
    """The Markdown."""
    rows = _Rows(content)
    blocks = [
        "# Results: the corpus",
        wrapped(
            "How many bits methods of compression take on gradients of six networks, early, midway "
            "and late in their training, and how much they lose: deltawire's codecs at usual "
            "settings, libraries, and PyTorch's communication hooks. You can make "
            "[the corpus](../reference/corpus.md) and this page yourself, with "
            "[a method of your own](../reference/corpus.md#add-a-method) in it. "
            "`python -m lab.traces.rank --page` makes the page from `corpus.json`."
        ),
        "\n".join(
            [
                "    DELTAWIRE_DATA=... python -m lab.traces.corpus --out out/corpus",
                "    pip install zstandard zipnn safetensors      # for the rows of other software",
                "    python -m lab.traces.rank --corpus out/corpus",
            ]
        ),
        wrapped(_conditions(content)),
        *_lossless(rows, content["lowest_bits"]),
        *_lossy(rows),
        *_rivals(rows),
        *_by_network(rows),
        *_other_content(rows),
    ]
    return "\n\n".join(blocks) + "\n"


def _conditions(content: dict) -> str:
    loads = [row["speed"]["load"] for row in content["rows"]]
    load = statistics.median(loads) if loads else 0.0
    cpu = content["machine"].split(" cores of ")[-1]
    text = (
        f"The corpus is that of {content['made_by']}, with the digest `{content['digest'][:16]}`; "
        f"bits and errors depend on nothing else. Speeds are those of one thread of {cpu}"
    )
    if load > 1.2:
        text += (
            f", **while other programs used the machine** (a median load of {load:.1f}) and shared "
            "its caches and memory, so only large differences mean something"
        )
    text += (
        ". They are GB of float32 values per second of processor time, of all dense float32 "
        "gradients as one matrix, through each method's Python interface."
    )
    if content["missing"]:
        text += f" Left out, because not installed: {', '.join(content['missing'])}."
    return text


def _lossless(rows: _Rows, lowest_bits: dict[str, float]) -> Iterator[str]:
    yield "## Lossless"
    yield wrapped(
        "Bits a value, headers included: of float32 gradients, of bfloat16 gradients "
        "(16 bits uncompressed), of changes of weights over 20 local steps, and of sparse "
        "gradients of logistic regression, passed as dense arrays. The measurement checks that "
        "every bit comes back. **Bold**: the fewest bits of a column."
    )
    head = ("method", "of", "float32", "bfloat16", "changes", "sparse", "encode; decode, GB/s")
    groups = ("gradients", "bfloat16", "changes", "sparse gradients")
    chosen = rows.sorted(True, "gradients")
    lines = []
    for row in chosen:
        line = _named(row)
        for group in groups:
            bits = rows.mean(row, group, "bits")
            known = [rows.mean(each, group, "bits") for each in chosen]
            best = bits is not None and bits == min(each for each in known if each is not None)
            line.append(f"**{_number(bits, '{:.2f}')}**" if best else _number(bits, "{:.2f}"))
        lines.append([*line, _speed(row)])
    yield table(head, lines)
    yield wrapped(
        "Libraries get all tensors of a step as one array; a codec of deltawire codes each tensor "
        "by itself, and sends those of fewer than 256 values raw. `gcomp:cut=0` is not in this "
        "table, because it loses the sign of zeros and subnormal values ([below](#other-values)). "
        "Changes are differences of weights that are close to each other, so that their last bits "
        f"are mostly 0: the lowest is 1 in {100 * lowest_bits['changes']:.0f} % of them, and in "
        f"{100 * lowest_bits['gradients']:.0f} % of gradients. Codes of whole bytes use that, and "
        "`gcomp` leaves such bits out three at a time."
    )


def _lossy(rows: _Rows) -> Iterator[str]:
    yield "## With errors"
    yield wrapped(
        "Dense float32 gradients, the mean over networks. Bits, relative L2 error and cosine are "
        "those of a single message without a residual (ten traces). **20 steps** are consecutive, "
        "with what the method keeps from step to step (five traces): their bits, the relative L2 "
        "error of the sum of what came out against the sum of what went in, and the share of that "
        "sum that was delivered. **Bold**: no row has both fewer bits and less error after 20 "
        "steps."
    )
    head = (
        *("method", "of", "bits", "error", "cosine"),
        *("20 steps: bits", "error", "delivered, %", "encode; decode, GB/s"),
    )
    best = {id(row) for row in _frontier(rows)}
    lines = []
    for row in rows.sorted(False, "gradients"):
        name, whose = _named(row)
        delivered = rows.mean(row, "row", "delivered")
        lines.append(
            [
                f"**{name}**" if id(row) in best else name,
                whose,
                *(_number(rows.mean(row, "gradients", each)) for each in ("bits", "error")),
                _number(rows.mean(row, "gradients", "cosine"), "{:.3f}"),
                *(_number(rows.mean(row, "row", each)) for each in ("bits", "error")),
                _number(None if delivered is None else 100 * delivered, "{:.1f}"),
                _speed(row),
            ]
        )
    yield table(head, lines)
    yield wrapped(
        "A method that needs [significance](../reference/glossary.md) has no figures of 20 steps: "
        "it is recorded for single steps only. `threshold` and `twobit` have an absolute "
        "threshold, which is not tuned here. PowerSGD's factors of an n x m matrix have r (n + m) "
        "values: the networks are small, and larger matrices pay more. A small error after 20 "
        "steps is neither necessary nor sufficient for good training; [Training](training.md) has "
        "that."
    )


def _frontier(rows: _Rows) -> list[Row]:
    """The rows that no other has fewer bits and less error than, in 20 steps."""
    points = {
        id(row): (rows.mean(row, "row", "bits"), rows.mean(row, "row", "error"))
        for row in rows.all
        if not row["lossless"]
    }
    known = {key: point for key, point in points.items() if None not in point}
    return [
        row
        for row in rows.all
        if id(row) in known and not any(_beats(other, known[id(row)]) for other in known.values())
    ]


def _beats(one: tuple, other: tuple) -> bool:
    return one != other and one[0] <= other[0] and one[1] <= other[1]


def _rivals(rows: _Rows) -> Iterator[str]:
    yield "## Other software, and what is better at both"
    yield wrapped(
        "For each row of other software, the codec of deltawire with the fewest bits among those "
        "that have neither more bits nor more error. Lossless rows are compared by the bits of "
        "float32 gradients, others by 20 steps. Speeds are encode; decode in GB/s, theirs and ours."
    )
    lines = [
        line
        for lossless, group in ((True, "gradients"), (False, "row"))
        for line in _against(rows, lossless, group)
    ]
    yield table(("method", "bits; error", "better at both", "bits; error", "speeds"), lines)


def _against(rows: _Rows, lossless: bool, group: str) -> Iterator[list[str]]:
    """A line for each row that isn't deltawire's."""

    def figures(row: Row) -> tuple:
        return rows.mean(row, group, "bits"), rows.mean(row, group, "error")

    known = [row for row in rows.sorted(lossless, group) if None not in figures(row)]
    for row in known:
        if row["whose"] == OURS:
            continue
        line = [row["name"], "; ".join(map(_number, figures(row)))]
        better = [
            each for each in known if each["whose"] == OURS and _beats(figures(each), figures(row))
        ]
        if not better:
            yield [*line, "none", "", _speed(row)]
            continue
        best = min(better, key=figures)
        numbers = "; ".join(map(_number, figures(best)))
        yield [*line, f"`{best['name']}`", numbers, f"{_speed(row)} / {_speed(best)}"]


def _by_network(rows: _Rows) -> Iterator[str]:
    yield "## Network by network"
    yield "Bits a value, and relative L2 error after 20 consecutive steps."
    yield _table_of_pairs(rows, "row", _NETWORKS, rows.of_network)


def _other_content(rows: _Rows) -> Iterator[str]:
    yield "## Other values"
    yield wrapped(
        "Bits a value and relative L2 error of a single message: of bfloat16 gradients, where the "
        "method takes them as such; of changes of weights over 20 local steps; of gradients of "
        "logistic regression on 20 Newsgroups, passed as dense arrays. The last column is of 20 "
        "consecutive ones of these."
    )
    groups = {"bfloat16": "bfloat16", "changes": "changes", "sparse gradients": "sparse"}
    groups["sparse row"] = "sparse, 20 steps"
    yield _table_of_pairs(rows, "changes", groups, rows.mean)


def _table_of_pairs(
    rows: _Rows, known: str, columns: dict[str, str], of: Callable[[Row, str, str], float | None]
) -> str:
    """Bits and error by method and column, of the methods whose bits of `known` there are."""
    chosen = [row for row in rows.sorted(False, known) if rows.mean(row, known, "bits") is not None]
    cells = (
        [
            _named(row)[0],
            *(_pair(of(row, each, part) for part in ("bits", "error")) for each in columns),
        ]
        for row in chosen
    )
    return table(("method", *columns.values()), cells)


def _named(row: Row) -> list[str]:
    return (
        [f"`{row['name']}`", row["whose"]] if row["whose"] == OURS else [row["name"], row["whose"]]
    )


def _pair(values: Iterable[float | None]) -> str:
    known = list(values)
    return "-" if None in known else "; ".join(map(_number, known))


def _number(value: float | None, form: str = "{:.3g}") -> str:
    return "-" if value is None else form.format(value)


def _speed(row: Row) -> str:
    return "; ".join(f"{row['speed'][name]:.2g}" for name in ("encode_gb_s", "decode_gb_s"))
