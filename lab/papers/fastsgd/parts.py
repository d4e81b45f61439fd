"""The parts of the paper's evaluation, run again: each returns lines of Markdown and figures."""

import argparse
import dataclasses
import tempfile
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path

from lab.papers.fastsgd import paper
from lab.papers.fastsgd.figures import bars, lines
from lab.papers.fastsgd.trainings import Data, Training

_NAMES = {"plain": "none", "logquant": "LogQuant", "sketchml": "SketchML", "topk": "Top-k"}
_SHARES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # of the features, figure 7
_TAUS = (64, 96, 128)  # figure 6
_NEARLY_EXACT = "fastsgd:b=1.02,tau=2047"
# Lossless methods that send less than plain pairs: each weight has an owner, and keys are gaps of
# about a byte; and the same with values compressed by zstd.
_UNCOMPRESSED = ("owners(fp32 back fp32)", "owners(zstd back zstd)")


@dataclasses.dataclass
class Study:
    """The inputs of a part.

    Attributes:
        result: returns the figures of a training, which it runs unless they are known.
        link: the link of all trainings.
    """

    given: argparse.Namespace
    data: Data
    link: str
    result: Callable[[Training], dict]

    def run(self, codec: str, loss: str, **changes: object) -> dict:
        """The figures of a training with the usual settings and some changes."""
        usual = Training(
            codec=codec,
            workers=self.given.workers[0],
            link=self.link,
            loss=loss,
            features=self.given.features,
            epochs=self.given.epochs,
        )
        return self.result(dataclasses.replace(usual, **changes))

    @property
    def fastsgd(self) -> str:
        """The first of the codecs that is FastSGD."""
        return next(each for each in self.given.codecs if name_of(each) == "FastSGD")


@dataclasses.dataclass
class Part:
    """The results of a part."""

    lines: list[str]
    figures: dict[str, str]


def name_of(spec: str) -> str:
    """The paper's name of a codec."""
    return _NAMES.get(spec.split(":")[0], "FastSGD" if spec.startswith("fastsgd") else spec)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """Lines of Markdown."""
    names = list(head)
    return [
        "| " + " | ".join(names) + " |",
        "|" + "---|" * len(names),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]


def epoch_seconds(report: dict) -> float:
    """The mean seconds of an epoch."""
    return report["final"]["seconds"] / len(report["epochs"])


def step_bytes(report: dict) -> float:
    """The mean bytes that a rank sends per step; an SVM sends less as more rows are outside the
    margin."""
    return sum(each["bytes_per_step"] for each in report["epochs"]) / len(report["epochs"])


def curve(report: dict) -> tuple[list[float], list[float]]:
    """Seconds and held-out losses."""
    epochs = report["epochs"]
    return [each["seconds"] for each in epochs], [each["test_loss"] for each in epochs]


def components(study: Study) -> Part:
    """Figure 4: what each component gains."""
    specs = {
        "none": "plain",
        "keys": _NEARLY_EXACT,
        "logarithm": "fastsgd:tau=2047",
        "threshold": study.fastsgd,
    }
    rows, speeds, sizes = [], {}, {}
    for name, spec in specs.items():
        for loss in study.given.losses:
            report, plain = study.run(spec, loss), study.run("plain", loss)
            speed = epoch_seconds(plain) / epoch_seconds(report)
            size = step_bytes(plain) / step_bytes(report)
            speeds.setdefault(name, []).append(speed)
            sizes.setdefault(name, []).append(size)
            rows.append(
                (
                    *(f"{name} (`{spec}`)", paper.LOSSES[loss], f"{epoch_seconds(report):.2f}"),
                    *(f"{speed:.1f}", _or_dash(paper.COMPONENT_SPEED.get(name), "≤ {:.1f}")),
                    *(f"{size:.1f}", _or_dash(paper.COMPONENT_SIZE.get(name), "{:,.1f}")),
                )
            )
    head = ("up to", "loss", "s an epoch", "times faster", "paper", "times smaller", "paper")
    losses = [paper.LOSSES[loss] for loss in study.given.losses]
    return Part(
        table(head, rows),
        {
            "4a": bars(f"Speed, {study.link}", "times plain pairs'", losses, speeds),
            "4b": bars(f"Messages, {study.link}", "times smaller", losses, sizes),
        },
    )


def split(study: Study) -> Part:
    """Table 4: where an epoch's time goes."""
    rows = []
    for loss in study.given.losses:
        for spec in ("plain", study.fastsgd):
            report = study.run(spec, loss)
            names = ("compute", "encode", "decode", "exchange", "update")
            seconds = [_mean(report, name) for name in names]
            theirs = paper.SPLIT[loss, name_of(spec)]
            cells = [f"{a:.3f} / {b:g}" for a, b in zip(seconds, theirs, strict=True)]
            total = f"{epoch_seconds(report):.2f} / {sum(theirs):.0f}"
            rows.append((paper.LOSSES[loss], name_of(spec), total, *cells))
    head = ("loss", "method", "s an epoch: here / paper", "gradients", "encoding", "decoding")
    return Part(table((*head, "communication", "update"), rows), {})


def keys(study: Study) -> Part:
    """Tables 5 and 6: bits per key, for the gradients of one batch."""
    # Imported here because nothing else in this folder needs the package deltawire.
    from lab.papers.fastsgd import key_bits

    workers, rows = study.given.workers[0], round(0.07 * study.data.rows)
    with (
        tempfile.TemporaryDirectory() as folder,
        study.data.file(study.given.features).open() as text,
    ):
        head = Path(folder) / "head.libsvm"
        head.write_text("".join(islice(text, rows)))
        words = f"{head} --batch 1 --epochs 2 --ranks {workers} --features {study.given.features}"
        options = key_bits.parse(words.split())
        measured = key_bits.measure(key_bits.load_sparse_rows(head, options.features), options)
    found = {flag: each.each() for flag, each in measured.fastsgd.items()}
    flags = [str(flag) for flag in paper.KEY_BITS_BY_FLAG]
    theirs = [f"{bits:.2f}" for bits in paper.KEY_BITS_BY_FLAG.values()]
    both = (f"{measured.sketchml.each():.2f}", f"{paper.KEY_BITS['SketchML']:.2f}")
    ours = [f"{found[flag]:.2f}" for flag in paper.KEY_BITS_BY_FLAG]
    return Part(
        table(
            ("bits a key", *(f"l = {flag}" for flag in flags), "SketchML"),
            [("here", *ours, both[0]), ("paper", *theirs, both[1])],
        ),
        {},
    )


def threshold(study: Study) -> Part:
    """Figure 6: what the threshold does to the loss."""
    loss = study.given.losses[-1]
    reports = {f"τ = {tau}": study.run(f"fastsgd:tau={tau}", loss) for tau in _TAUS}
    reports["none"] = study.run("plain", loss)
    rows = [
        (
            *(name, f"{report['final']['test_loss']:.4f}", f"{epoch_seconds(report):.2f}"),
            f"{step_bytes(reports['none']) / step_bytes(report):.1f}",
        )
        for name, report in reports.items()
    ]
    drawn = {name: curve(report) for name, report in reports.items()}
    head = (f"{paper.LOSSES[loss]}", "held-out loss", "s an epoch", "times smaller")
    figure = lines(f"Threshold, {study.link}", ("seconds", "held-out loss"), drawn)
    return Part(table(head, rows), {"6": figure})


def features(study: Study) -> Part:
    """Figure 7: epochs' seconds by the number of features."""
    loss = study.given.losses[-1]
    counts = [max(11, round(share * study.given.features)) for share in _SHARES]
    seconds = {
        spec: [epoch_seconds(study.run(spec, loss, features=count, epochs=2)) for count in counts]
        for spec in ("plain", study.fastsgd)
    }
    rows = [
        (f"{count:,}", f"{a:.3f}", f"{b:.3f}", f"{a / b:.1f}")
        for count, a, b in zip(counts, *seconds.values(), strict=True)
    ]
    drawn = {name_of(spec): (list(map(float, counts)), each) for spec, each in seconds.items()}
    figure = lines(f"Features, {study.link}", ("features", "s an epoch"), drawn, log_x=True)
    head = ("features", "none: s an epoch", "FastSGD: s an epoch", "times faster")
    return Part(table(head, rows), {"7": figure})


def lowest(report: dict) -> float:
    """The lowest held-out loss of a training."""
    return min(each["test_loss"] for each in report["epochs"])


def reached(report: dict, loss: float) -> dict | None:
    """The first data epoch whose held-out loss is at most `loss`."""
    return next((each for each in report["epochs"] if each["test_loss"] <= loss), None)


def convergence(study: Study) -> Part:
    """Table 7 and figure 8: seconds to equal held-out losses.

    Methods end at different losses, so the times to their own ends can't be compared. Each is
    compared with FastSGD at two losses: the worse of both methods' lowest losses, which both reach,
    and the final loss of uncompressed pairs, within 1 %.
    """
    rows, figures = [], {}
    for loss in study.given.losses:
        reports = {
            spec: study.run(spec, loss, epochs=study.given.most_epochs)
            for spec in (*study.given.codecs, *_UNCOMPRESSED)
        }
        fastsgd, theirs = reports[study.fastsgd], paper.CONVERGENCE[loss]
        target = 1.01 * lowest(reports["plain"])
        for spec, report in reports.items():
            their = theirs.get(name_of(spec))
            both = max(lowest(report), lowest(fastsgd))
            rows.append(
                (
                    *(paper.LOSSES[loss], f"`{spec}`", f"{lowest(report):.4f}"),
                    *_beside(report, fastsgd, both),
                    *_beside(report, fastsgd, target),
                    "-" if their is None else f"{their / theirs['FastSGD']:.1f} ({their} s)",
                )
            )
        drawn = {spec: curve(report) for spec, report in reports.items()}
        title = f"{paper.LOSSES[loss]}, {study.link}"
        figures[f"8-{loss}"] = lines(title, ("seconds", "held-out loss"), drawn)
    head = ("loss", "codec", "lowest held-out loss")
    at_both = ("s to the loss both reach", "MB sent", "time / FastSGD's")
    at_target = ("s to plain's loss + 1 %", "MB sent", "time / FastSGD's")
    return Part(table((*head, *at_both, *at_target, "paper"), rows), figures)


def _beside(report: dict, fastsgd: dict, loss: float) -> tuple[str, str, str]:
    """Seconds and bytes to a loss, and the seconds over FastSGD's; "-" if it isn't reached."""
    ours, theirs = reached(report, loss), reached(fastsgd, loss)
    if ours is None:
        return "-", "-", "-"
    ratio = "-" if theirs is None else f"{ours['seconds'] / theirs['seconds']:.1f}"
    return f"{ours['seconds']:.1f}", f"{ours['bytes_sent'] / 1e6:.2f}", ratio


def workers(study: Study) -> Part:
    """Figure 9: epochs' seconds by the number of workers."""
    loss, counts = study.given.losses[-1], study.given.workers
    seconds = {
        spec: [epoch_seconds(study.run(spec, loss, workers=count, epochs=2)) for count in counts]
        for spec in study.given.codecs
    }
    rows = [(f"`{spec}`", *(f"{each:.2f}" for each in row)) for spec, row in seconds.items()]
    drawn = {spec: (list(map(float, counts)), row) for spec, row in seconds.items()}
    figure = lines(f"Workers, {study.link}", ("workers", "s an epoch"), drawn)
    return Part(table(("s an epoch", *map(str, counts)), rows), {"9": figure})


PARTS: dict[str, tuple[str, Callable[[Study], Part]]] = {
    "components": ("Figure 4: components", components),
    "split": ("Table 4: where the time goes", split),
    "keys": ("Tables 5 and 6: bits a key", keys),
    "threshold": ("Figure 6: the threshold", threshold),
    "features": ("Figure 7: the number of features", features),
    "convergence": ("Table 7 and figure 8: convergence", convergence),
    "workers": ("Figure 9: the number of workers", workers),
}


def _mean(report: dict, key: str) -> float:
    epochs = report["epochs"]
    return sum(each[f"{key}_seconds"] for each in epochs) / len(epochs)


def _or_dash(number: float | None, form: str) -> str:
    return "-" if number is None else form.format(number)
