"""3LC's evaluation (section 4): H. Lim, D. G. Andersen, M. Kaminsky, "3LC: Lightweight and
Effective Traffic Compression for Distributed Machine Learning" (MLSys 2019)."""

import dataclasses

from lab.papers.declaration import (
    Curve,
    Kind,
    Number,
    Paper,
    Plot,
    Reason,
    Run,
    Scale,
    Settings,
    Table,
    measured_by,
)

LINKS = {"10 Mbit/s": "10mbit", "100 Mbit/s": "100mbit", "1 Gbit/s": "1gbit"}


@dataclasses.dataclass(frozen=True)
class Design:
    """A compared design (section 4.2) and its line of table 1.

    Attributes:
        spec: of both directions.
        speed: over the baseline, by link; difference: of accuracy, in points.
    """

    spec: str
    speed: tuple[float, float, float]
    difference: float | None
    feedback: bool = True
    every: int = 1


# The accuracy of the baseline is 93.37 %.
DESIGNS = {
    "32-bit float": Design("fp32", (1, 1, 1), None),
    "8-bit int": Design("int8", (3.62, 3.47, 1.51), -0.04),
    "Stoch 3-value b-3-5": Design("terngrad:clip=off", (12.3, 7.51, 1.53), -1.31, feedback=False),
    "MQE 1-bit int": Design("onebit", (14.6, 7.40, 1.30), -0.16),
    "5% sparsification": Design("dropping:k=5%", (8.98, 6.62, 1.44), -0.50),
    "2 local steps": Design("fp32", (1.92, 1.87, 1.38), -0.34, every=2),
    "3LC (s=1.00)": Design("3lc:s=1", (15.9, 7.97, 1.53), -0.05),
    "3LC (s=1.50)": Design("3lc:s=1.5", (20.9, 8.70, 1.53), -0.08),
    "3LC (s=1.75)": Design("3lc:s=1.75", (22.8, 9.04, 1.53), 0.14),
    "3LC (s=1.90)": Design("3lc:s=1.9", (22.8, 9.22, 1.55), -0.27),
}
MULTIPLIERS = ("1.00", "1.50", "1.75", "1.90")
# Table 2: how many times smaller (as far as the text has it), bits per state change.
TRAFFIC = {
    "No ZRE": (20.0, 1.60),
    "1.00": (39.0, 0.81),
    "1.50": (None, 0.45),
    "1.75": (107.0, 0.30),
    "1.90": (160.0, 0.20),
}
SHARES = {"25 %": 0.25, "50 %": 0.5}  # of the steps, in figures 3 and 5
LONGER = (
    *("32-bit float", "MQE 1-bit int", "5% sparsification"),
    *("3LC (s=1.00)", "3LC (s=1.50)", "3LC (s=1.75)", "3LC (s=1.90)"),
)
BASE = "32-bit float"


def _training(table: str, cell: str, spec: str, share: float | None = 1.0, **more: object) -> Run:
    """A share of None is the scale's longer training."""
    usual: dict[str, object] = {"spec": spec, "feedback": True, "every": 1, "share": share}
    return Run(table, cell, "training", {**usual, **more})


def _runs() -> tuple[Run, ...]:
    runs = []
    for name, design in DESIGNS.items():
        more = {"feedback": design.feedback, "every": design.every}
        runs.append(_training("1", name, design.spec, **more))
        for words, link in LINKS.items():
            settings = {"spec": design.spec, "link": link, "every": design.every}
            runs.append(Run("1", f"{name}, {words}", "link", settings))
        for words, share in SHARES.items():
            runs.append(_training("fig3", f"{name}, {words}", design.spec, share, **more))
        if name in LONGER:
            runs.append(_training("fig3", f"{name}, longer", design.spec, None, **more))
    # The paper's own two codings; table 1 has the codings that deltawire chooses by default.
    runs.append(_training("2", "No ZRE", "3lc:s=1,runs=off"))
    runs += [_training("2", s, f"3lc:s={float(s):g},mode=paper") for s in MULTIPLIERS]
    return tuple(runs)


def _table1() -> Table:
    rows = []
    for name, design in DESIGNS.items():
        speeds: list[Number | None] = [
            Number(
                ("1", f"{name}, {words}"),
                "ms",
                paper,
                ("1", f"{BASE}, {words}"),
                "base/value",
                better=None if name == BASE else "higher",
            )
            for words, paper in zip(LINKS, design.speed, strict=True)
        ]
        points = Number(
            *(("1", name), "accuracy", design.difference, ("1", BASE), "value-base", "higher"),
            **{"near": 0.5, "form": "{:+.2f}"},
        )
        accuracy = Number(("1", name), "accuracy", 93.37 if name == BASE else None, form="{:.1f}")
        rows.append((name, (*speeds, accuracy, None if name == BASE else points)))
    return Table(
        number="1",
        title="Table 1: speed and accuracy of ten designs",
        head=("design", *LINKS, "accuracy, %", "difference, points"),
        rows=tuple(rows),
        differs=(
            "A cell has the paper's number, then ours. Speeds are of a step, relative to the "
            "baseline over the same link; accuracies are of trainings of their own. The paper "
            "trains ResNet-110 on CIFAR-10 with a GPU for each of ten workers; here all ranks "
            "share this machine's cores, so that at 1 Gbit/s computing dominates. 5% "
            "sparsification takes a threshold from a sample and sends a bitmap, as the paper's. A "
            "difference counts as near within half a point."
        ),
        because=(
            Reason(
                tuple(name for name in LONGER if name != BASE),
                ("difference, points",),
                "After few steps much of a gradient still waits in residuals: with 5 times as many "
                "the difference shrinks (figures 3, 4 and 5).",
                tuple(("fig3", f"{name}, longer", "minutes") for name in LONGER),
            ),
            Reason(
                ("2 local steps",),
                ("difference, points",),
                "With 2 local steps the optimizer makes half as many steps; the baseline with half "
                "as many steps is no better.",
                (("1", "2 local steps", "minutes"), ("fig3", f"{BASE}, 50 %", "minutes")),
            ),
        ),
    )


def _table2() -> Table:
    rows = []
    for name, (ratio, bits) in TRAFFIC.items():
        key = ("2", name)
        rows.append(
            (
                name if name == "No ZRE" else f"s = {name}",
                (
                    Number(key, "ratio", ratio, better="higher"),
                    Number(key, "bits", bits, better="lower"),
                    Number(key, "push_bits"),
                    Number(key, "pull_bits"),
                    Number(("1", f"3LC (s={name})"), "bits") if name in MULTIPLIERS else None,
                ),
            )
        )
    return Table(
        number="2",
        title="Table 2 and figure 6: bits of a state change",
        head=("3LC", "times smaller", "bits", "push bits", "pull bits", "`mode=auto`: bits"),
        rows=tuple(rows),
        differs=(
            "Bits are those of whole messages, headers and uncompressed small tensors included, "
            "divided by all values. The paper's figures are of its own two codings (`mode=paper`), "
            "the last column is what deltawire chooses by itself. Where table 1 has an accuracy "
            "far below the baseline's, most of the gradient waits in residuals: bits then say what "
            "is sent, not that it trains."
        ),
        plots=tuple(
            Plot(
                f"bits-{s.replace('.', '')}",
                f"Bits a value, s = {s}",
                "step",
                "bits a value",
                (Curve("push", ("2", s), "push_curve"), Curve("pull", ("2", s), "pull_curve")),
            )
            for s in ("1.00", "1.75")
        ),
    )


def _figure3() -> Table:
    def accuracy(key: tuple[str, str]) -> Number:
        return Number(key, "accuracy", form="{:.1f}")

    def distance(name: str) -> Number | None:
        if name == BASE or name not in LONGER:
            return None
        base = ("fig3", f"{BASE}, longer")
        return Number(
            *(("fig3", f"{name}, longer"), "accuracy", DESIGNS[name].difference, base),
            **{"how": "value-base", "better": "higher", "near": 0.5, "form": "{:+.2f}"},
        )

    rows = []
    for name in DESIGNS:
        shares = (accuracy(("fig3", f"{name}, {share}")) for share in SHARES)
        longer = accuracy(("fig3", f"{name}, longer")) if name in LONGER else None
        rows.append((name, (*shares, accuracy(("1", name)), longer, distance(name))))
    shown = (BASE, "Stoch 3-value b-3-5", "5% sparsification", "2 local steps", "3LC (s=1.00)")
    return Table(
        number="fig3",
        title="Figures 3, 4 and 5: fewer and more steps",
        head=(
            *("design: accuracy, %", *SHARES, "100 %"),
            *("longer training", "its difference, points"),
        ),
        rows=tuple(rows),
        differs=(
            "Each share of the steps is a training of its own, as the learning rate falls with its "
            "length. The paper has these as plots, of 25, 50, 75 and 100 %. The last two columns "
            "are of a longer training than that of table 1; its difference from the baseline's is "
            "shown next to the paper's of table 1."
        ),
        because=(
            Reason(
                ("MQE 1-bit int", "5% sparsification", "3LC (s=1.00)"),
                ("its difference, points",),
                "With 20 times as many steps as table 1 has the differences are the paper's, "
                "within half a point: what is missing here still waits in residuals.",
                tuple(
                    ("fig3", f"{name}, longer", "hour")
                    for name in (BASE, "MQE 1-bit int", "5% sparsification", "3LC (s=1.00)")
                ),
            ),
        ),
        plots=(
            Plot(
                *("loss", "Training loss", "step", "loss"),
                tuple(Curve(name, ("1", name), "loss_curve") for name in shown),
            ),
        ),
    )


def _training_words(scale: Settings) -> str:
    return (
        f"trainings are of {scale['network']} by {scale['workers']} workers and a server in one "
        f"process, batches of {scale['batch']}, {scale['steps']:,} steps (a longer training "
        f"{scale['longer']:g} times as many at a rate of {scale['longer_lr']:g}, the paper "
        f"25,600), SGD with momentum, a rate of {scale['lr']:g} that falls along a cosine"
    )


def _link_words(scale: Settings) -> str:
    servers = "1 server" if scale["servers"] == 1 else f"{scale['servers']} servers"
    return (
        f"times of a step are of {scale['workers']} workers and {servers}, processes of this "
        f"machine in network namespaces behind real links (`tbf`), LeNet5 with "
        f"{scale['values']:,} values on Fashion-MNIST, batches of 64, up to {scale['steps']} steps "
        f"or {scale['seconds']:g} s"
    )


KINDS = {
    "training": Kind(measured_by("lab.papers.threelc.training"), _training_words),
    "link": Kind(measured_by("lab.papers.threelc.rank"), _link_words),
}


def _scale(name: str, training: Settings, link: Settings) -> Scale:
    lenet = {"network": "lenet5/fashion", "lr": 0.05, "longer_lr": 0.02}
    large = {"servers": 1, "network": "lenet5", "size": "large", "values": 431_080, "warm_up": 1}
    return Scale(name, {"training": {**lenet, **training}, "link": {**large, **link}})


_SMALL = {"size": "small", "values": 51_532}
_RESNET = {"network": "resnet20/cifar10", "lr": 0.1, "longer_lr": 0.1, "batch": 32}
_GENTLE = {"lr": 0.02}  # 0.05 diverges after some hundred steps
SCALES = (
    _scale(
        "seconds",
        {"workers": 2, "batch": 8, "steps": 8, "test": 200, "longer": 2},
        {**_SMALL, "workers": 2, "steps": 2, "seconds": 0.5},
    ),
    _scale(
        "minutes",
        {"workers": 10, "batch": 8, "steps": 60, "test": 2000, "longer": 5},
        {**_SMALL, "workers": 3, "steps": 10, "seconds": 2.0},
    ),
    _scale(
        "hour",
        {**_GENTLE, "workers": 10, "batch": 8, "steps": 300, "test": 10_000, "longer": 4},
        {"workers": 4, "steps": 20, "seconds": 8.0},
    ),
    _scale(
        "hours",
        {**_GENTLE, "workers": 10, "batch": 32, "steps": 1000, "test": 10_000, "longer": 3},
        {"workers": 4, "steps": 50, "seconds": 20.0},
    ),
    _scale(
        "night",
        {**_RESNET, "workers": 4, "steps": 2000, "test": 10_000, "longer": 4},
        {"workers": 10, "steps": 50, "seconds": 60.0},
    ),
    _scale(
        "nights",
        {**_RESNET, "workers": 10, "steps": 5500, "test": 10_000, "longer": 1},
        {"workers": 10, "steps": 100, "seconds": 300.0},
    ),
)
PAPER = Paper(
    name="threelc",
    title="3LC's tables and figures",
    source=(
        'H. Lim, D. G. Andersen, M. Kaminsky, "3LC: Lightweight and Effective Traffic Compression '
        'for Distributed Machine Learning" (MLSys 2019), section 4.'
    ),
    scales=SCALES,
    kinds=KINDS,
    runs=_runs(),
    tables=(_table1(), _table2(), _figure3()),
)
