"""FastSGD's runs, tables and figures: the paper's numbers and ours. For figures, only the numbers
in the paper's text are known."""

from lab.papers.declaration import Curve, Number, Plot, Reason, Run, Table

LOSSES = {"Linear": "squared", "LR": "logistic", "SVM": "hinge"}
FASTSGD = "fastsgd:tau=128"
CODECS = {
    "Adam": "plain",
    "LogQuant": "logquant",
    "SketchML": "sketchml",
    "Top-k": "topk:k=0.1%",
    "FastSGD": FASTSGD,
}
# Figure 4: up to which component: spec; speed and size relative to plain Adam, the maximum of three
# losses.
COMPONENTS = {
    "none": ("plain", None, None),
    "keys": ("fastsgd:b=1.02,tau=2047", 1.2, 1.4),
    "logarithm": ("fastsgd:tau=2047", 4.0, None),
    "threshold": (FASTSGD, 7.9, 18720.0),
}
# Of our data: with fewer features keys are closer to each other. The paper's are not known.
DENSER = {"keys": 1.0, "a quarter of the features": 0.25, "a sixteenth of the features": 0.0625}
BASES = ("1.03625", "1.075", "1.1125")  # figure 5; the paper names the first and the last
TAUS = (64, 96, 128)
SHARES = {"0.01 %": 1e-4, "0.1 %": 1e-3, "1 %": 1e-2, "10 %": 1e-1, "100 %": 1.0}
COUNTS = (1, 2, 4, 8)  # of workers
LOWER = 0.005  # a rate below the grid's

# Table 4: seconds of an epoch: gradients, encoding, decoding, communication, updates of the model.
PARTS = ("compute", "encode", "decode", "exchange", "update")
SPLIT = {
    ("Linear", "Adam"): (22, 0, 0, 84, 80),
    ("Linear", "FastSGD"): (21, 0.05, 0.08, 6, 6),
    ("LR", "Adam"): (23, 0, 0, 68, 65),
    ("LR", "FastSGD"): (23, 0.05, 0.06, 4, 5),
    ("SVM", "Adam"): (21, 0, 0, 73, 64),
    ("SVM", "FastSGD"): (21, 0.06, 0.07, 5, 8),
}
# Tables 5 and 6: bits of a key.
KEY_BITS = {1: 8.65, 2: 6.04, 3: 7.06, 4: 12.27, 5: 14.78}
SKETCHML_BITS = 9.95
# Table 7: seconds to convergence, of KDD12 and of WebSpam.
CONVERGENCE = {
    "Linear": {"FastSGD": 348, "Adam": 2969, "LogQuant": 2765, "SketchML": 2007, "Top-k": 1189},
    "LR": {"FastSGD": 437, "Adam": 2638, "LogQuant": 2392, "SketchML": 1836, "Top-k": 970},
    "SVM": {"FastSGD": 331, "Adam": 2441, "LogQuant": 2550, "SketchML": 1871, "Top-k": 978},
}
WEBSPAM = {
    "Linear": {"FastSGD": 110, "Adam": 439, "LogQuant": 365, "SketchML": 260, "Top-k": 133},
    "LR": {"FastSGD": 102, "Adam": 441, "LogQuant": 314, "SketchML": 210, "Top-k": 122},
    "SVM": {"FastSGD": 213, "Adam": 838, "LogQuant": 678, "SketchML": 479, "Top-k": 245},
}


def _run(table: str, cell: str, codec: str, loss: str, kind: str = "epochs", **more: object) -> Run:
    usual = {"codec": codec, "loss": LOSSES[loss], "features": 1.0, "workers": None}
    usual |= {"rates": None}  # the scale's
    return Run(table, cell, kind, {**usual, **more})


def make_runs() -> tuple[Run, ...]:
    """All of them."""
    runs = [
        _run("fig4", f"{loss}, {name}", spec, loss)
        for loss in LOSSES
        for name, (spec, _, _) in COMPONENTS.items()
    ]
    for words, share in DENSER.items():
        runs.append(Run("6", words, "keys", {"features": share}))
    runs += [_run("fig5", f"b = {b}", f"fastsgd:tau=128,b={b}", "LR") for b in BASES]
    runs += [_run("fig6", f"tau = {tau}", f"fastsgd:tau={tau}", "LR") for tau in TAUS]
    for name, share in SHARES.items():
        for method in ("Adam", "FastSGD"):
            runs.append(_run("fig7", f"{method}, {name}", CODECS[method], "SVM", features=share))
    for loss in LOSSES:
        for name, spec in CODECS.items():
            runs.append(_run("7", f"{loss}, {name}", spec, loss, kind="convergence"))
            runs.append(_run("7w", f"{loss}, {name}", spec, loss, kind="webspam"))
    for name, spec in CODECS.items():
        for count in COUNTS:
            runs.append(_run("fig9", f"{name}, {count}", spec, "SVM", workers=count))
        runs.append(Run("fig10", name, "network", {"codec": "fp32" if name == "Adam" else spec}))
        cell = f"SVM, {name}, {LOWER:g}"
        runs.append(_run("7", cell, spec, "SVM", kind="convergence", rates=(LOWER,)))
    return tuple(runs)


def make_tables() -> tuple[Table, ...]:
    """In the paper's order."""
    return (
        _figure4(),
        _table4(),
        _table6(),
        _losses_table(
            "fig5",
            "Figure 5: the base",
            [f"b = {b}" for b in BASES],
            "The paper names the first and the last base; it recommends about 1.1.",
        ),
        _losses_table(
            "fig6",
            "Figure 6: the threshold",
            [f"tau = {tau}" for tau in TAUS],
            "The threshold is the sum of magnitudes over b^tau: it drops more where a gradient has "
            "more elements.",
        ),
        _figure7(),
        _table7(),
        _webspam(),
        _figure9(),
        _figure10(),
    )


def _figure4() -> Table:
    rows = []
    for loss in LOSSES:
        for name, (spec, speed, size) in COMPONENTS.items():
            key, base = ("fig4", f"{loss}, {name}"), ("fig4", f"{loss}, none")
            rows.append(
                (
                    f"{loss}, {name} (`{spec}`)",
                    (
                        Number(key, "epoch"),
                        Number(key, "epoch", speed, base, "base/value", "higher", form="{:.1f}"),
                        Number(
                            *(key, "step_bytes", size, base, "base/value", "higher"), form="{:,.1f}"
                        ),
                        Number(key, "loss", form="{:.4f}"),
                    ),
                )
            )
    return Table(
        number="fig4",
        title="Figure 4: what each component gains",
        head=("up to", "s an epoch", "times faster", "times smaller", "held-out loss"),
        rows=tuple(rows),
        differs=(
            "The paper's numbers are the largest of its three losses, so each is an upper bound. "
            "Keys alone has values to 2 %, since `fastsgd` has no form with whole floats."
        ),
        because=(
            Reason(
                tuple(f"{loss}, threshold (`{FASTSGD}`)" for loss in LOSSES),
                ("times faster", "times smaller"),
                "The threshold is the sum of a gradient's magnitudes over 1.1^tau, so with fewer "
                "rows the published tau = 128 drops less: with 50,000 rows it makes logistic "
                "regression's messages 4 times smaller and an epoch hardly faster. With ten "
                "million it makes one 6.9 times as fast "
                "([measured](../papers.md#fastsgd-as-many-features-as-kdd12)). Figure 6 shows what "
                "a lower tau sends, and what it costs.",
                tuple(
                    ("fig4", f"LR, {name}", scale)
                    for scale in ("minutes", "hours")
                    for name in ("none", "threshold")
                ),
            ),
            Reason(
                tuple(f"{loss}, logarithm (`fastsgd:tau=2047`)" for loss in LOSSES),
                ("times faster",),
                "Messages are about 4 times smaller, which is the most that can be gained; but a "
                "quarter to a half of an epoch of plain pairs is no sending (table 4): gradients "
                "take as long as before, and the update of the model three quarters of it.",
                tuple(
                    ("fig4", f"{loss}, {name}", "hours")
                    for loss in LOSSES
                    for name in ("none", "logarithm")
                ),
            ),
        ),
    )


def _table4() -> Table:
    rows = []
    for (loss, method), theirs in SPLIT.items():
        name = "none" if method == "Adam" else "threshold"
        key = ("fig4", f"{loss}, {name}")
        cells = [Number(key, part, paper) for part, paper in zip(PARTS, theirs, strict=True)]
        rows.append((f"{loss}, {method}", (*cells, Number(key, "epoch", sum(theirs)))))
    return Table(
        number="4",
        title="Table 4: where an epoch's seconds go",
        head=("method", *("gradients", "encoding", "decoding", "communication", "update"), "all"),
        rows=tuple(rows),
        differs="Compare shares, not seconds: the paper's epochs have up to 149,639,105 rows.",
    )


def _table6() -> Table:
    rows = []
    for words in DENSER:
        key, whole = ("6", words), words == "keys"
        cells = [
            Number(key, f"l{flag}", bits if whole else None, better="lower", form="{:.2f}")
            for flag, bits in KEY_BITS.items()
        ]
        others = (
            Number(key, "sketchml", SKETCHML_BITS if whole else None, form="{:.2f}"),
            Number(key, "auto", form="{:.2f}"),
            Number(key, "gap", form="{:.1f}"),
        )
        rows.append(("bits a key" if whole else words, (*cells, *others)))
    return Table(
        number="6",
        title="Tables 5 and 6: bits of a key",
        head=(
            *("", *(f"l = {flag}" for flag in KEY_BITS)),
            *("SketchML", "`keys=auto`", "features a key"),
        ),
        rows=tuple(rows),
        differs=(
            "Of the gradients of one batch. Bits depend on how far apart keys are: the formula is "
            "ceil(log2(features / keys)) + l. The paper doesn't say how far its keys are."
        ),
        because=(
            Reason(
                ("bits a key",),
                ("l = 2", "l = 3"),
                "With fewer features for the same rows keys are closer, and take fewer bits: with "
                "l = 2 the paper's number lies between those for a quarter and for a sixteenth of "
                "the features, with l = 3 between ours and a quarter's.",
                tuple(("6", words, "minutes") for words in DENSER),
            ),
        ),
    )


def _losses_table(number: str, title: str, names: list[str], differs: str) -> Table:
    """Loss, time and bytes of logistic regression by a parameter of fastsgd."""
    plain = ("fig4", "LR, none")
    rows = [("Adam", plain), *((name, (number, name)) for name in names)]
    return Table(
        number=number,
        title=title,
        head=("LR", "held-out loss", "s an epoch", "times smaller"),
        rows=tuple(
            (
                name,
                (
                    Number(key, "loss", form="{:.4f}"),
                    Number(key, "epoch"),
                    Number(key, "step_bytes", None, plain, "base/value", form="{:,.1f}"),
                ),
            )
            for name, key in rows
        ),
        differs=differs,
    )


def _figure7() -> Table:
    rows = []
    for share in SHARES:
        plain, fast = (("fig7", f"{method}, {share}") for method in ("Adam", "FastSGD"))
        faster = Number(fast, "epoch", None, plain, "base/value")
        rows.append((share, (Number(plain, "epoch"), Number(fast, "epoch"), faster)))
    return Table(
        number="fig7",
        title="Figure 7: the number of features",
        head=("features, SVM", "Adam: s an epoch", "FastSGD: s an epoch", "times faster"),
        rows=tuple(rows),
        differs=(
            "The paper varies 0.0001 % to 100 %; FastSGD is slower only at the smallest share."
        ),
    )


def _reasons7() -> tuple[Reason, ...]:
    def row(loss: str, name: str) -> str:
        return f"{loss}, {name} (`{CODECS[name]}`)"

    def runs(*names: str) -> tuple[tuple[str, str, str], ...]:
        return tuple(("7", f"{loss}, {name}", "hour") for loss in LOSSES for name in names)

    heads = ("time / FastSGD's",)
    return (
        Reason(
            tuple(row(loss, name) for loss in LOSSES for name in ("Adam", "LogQuant")),
            heads,
            "Until Adam's loss these methods send 2 to 5 times FastSGD's megabytes, so that they "
            "can't take 5 to 9 times as long: the gradients have too few elements for the "
            "published threshold to drop many (figure 4).",
            runs("Adam", "LogQuant", "FastSGD"),
        ),
        Reason(
            tuple(row(loss, "Top-k") for loss in LOSSES),
            heads,
            "For the same reason top-k sends less than FastSGD until then, or with SVM a third "
            "more.",
            runs("Top-k", "FastSGD"),
        ),
        Reason(
            (row("SVM", "SketchML"),),
            heads,
            "At 0.02, the grid's lowest rate, the hinge loss is low after the first epoch and then "
            "rises, with every method; SketchML's lowest loss is that of its first epoch with two "
            "of three seeds, so that its time is short. At a quarter of the rate all reach lower "
            "losses, and SketchML takes longer than FastSGD.",
            tuple(
                ("7", f"SVM, {name}{rate}", "hour")
                for rate in ("", f", {LOWER:g}")
                for name in ("SketchML", "FastSGD")
            ),
        ),
    )


HEAD7 = (
    "method",
    "lowest held-out loss",
    "time / FastSGD's",
    "s to Adam's loss + 1 %",
    "MB a rank sent until then",
    "rate",
)
Times = dict[str, dict[str, int]]


def _rows7(
    number: str, times: Times, rate: str = "", better: str | None = "higher"
) -> tuple[tuple[str, tuple[Number | None, ...]], ...]:
    """A row for each loss and method; those at a rate of our own have no number of the paper."""
    rows = []
    for loss, theirs in times.items():
        plain, fast = (number, f"{loss}, Adam{rate}"), (number, f"{loss}, FastSGD{rate}")
        for name, spec in CODECS.items():
            key = (number, f"{loss}, {name}{rate}")
            paper = None if rate else theirs[name] / theirs["FastSGD"]
            ratio = Number(
                *(key, "epochs", paper, fast, "time over base's"),
                better=None if name == "FastSGD" else better,
                form="{:.2f}",
            )
            numbers = (
                Number(key, "loss", form="{:.4f}"),
                ratio,
                Number(key, "epochs", None, plain, "seconds to base's loss"),
                Number(key, "epochs", None, plain, "MB to base's loss"),
                Number(key, "rate"),
            )
            rows.append((f"{loss}, {name} (`{spec}`){rate}", numbers))
    return tuple(rows)


def _plots7(number: str, name: str) -> tuple[Plot, ...]:
    return tuple(
        Plot(
            *(f"{name}-{LOSSES[loss]}", f"{loss}", "seconds", "held-out loss"),
            tuple(Curve(name, (number, f"{loss}, {name}"), "epochs") for name in CODECS),
        )
        for loss in LOSSES
    )


def _table7() -> Table:
    lower = _rows7("7", {"SVM": CONVERGENCE["SVM"]}, f", {LOWER:g}")
    return Table(
        number="7",
        title="Table 7 and figure 8: convergence",
        head=HEAD7,
        rows=_rows7("7", CONVERGENCE) + lower,
        differs=(
            "Methods end at different losses, so the time of each to its own end compares nothing. "
            "Time / FastSGD's is to the loss that both reach; the paper's number, of KDD12, is the "
            "quotient of its times to convergence. The last two columns are to the loss that Adam "
            "reaches, within 1 %; a dash means never. Plain pairs are not the strongest lossless "
            "baseline ([measured](../sparse-linear.md#the-papers-tables-again)). The last "
            f"five rows have a rate below the others', {LOWER:g}; they were trained on a busy "
            "machine, so compare their quotients, not their seconds."
        ),
        because=_reasons7(),
        plots=_plots7("7", "loss"),
    )


def _webspam() -> Table:
    return Table(
        number="7w",
        title="Table 7, WebSpam: convergence",
        head=HEAD7,
        rows=_rows7("7w", WEBSPAM, better=None),
        differs=(
            "Columns as in the table above. A batch of WebSpam's long rows has most features, here "
            "as there, so that gradients are nearly dense. No verdict: so few rows teach little "
            "more than how often a label comes, whatever the method."
        ),
        plots=_plots7("7w", "webspam"),
    )


def _figure9() -> Table:
    return Table(
        number="fig9",
        title="Figure 9: the number of workers",
        head=("s an epoch, SVM", *map(str, COUNTS)),
        rows=tuple(
            (
                f"{name} (`{spec}`)",
                tuple(Number(("fig9", f"{name}, {count}"), "epoch") for count in COUNTS),
            )
            for name, spec in CODECS.items()
        ),
        differs=(
            "The paper varies 3 to 11 workers, each a node; here all workers share this machine's "
            "cores, so that every further one takes processor time from the others."
        ),
    )


def _figure10() -> Table:
    return Table(
        number="fig10",
        title="Figure 10: a neural network",
        head=("method", "training loss", "accuracy, %", "times smaller"),
        rows=tuple(
            (
                name,
                (
                    Number(("fig10", name), "loss", form="{:.3f}"),
                    Number(("fig10", name), "accuracy", form="{:.1f}"),
                    Number(("fig10", name), "step_bytes", None, ("fig10", "Adam"), "base/value"),
                ),
            )
            for name in CODECS
        ),
        differs=(
            "As in the paper a multilayer perceptron of 7 x 7 inputs and two layers of 100 units, "
            "Adam at 0.02; all ten of MNIST's classes, where the paper's output has five. `topk` "
            "keeps what it does not send."
        ),
        plots=(
            Plot(
                *("network", "A neural network", "step", "training loss"),
                tuple(Curve(name, ("fig10", name)) for name in CODECS),
            ),
        ),
    )
