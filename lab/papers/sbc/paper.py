"""SBC's evaluation: F. Sattler, S. Wiedemann, K.-R. Müller, W. Samek, "Sparse Binary Compression:
Towards Distributed Deep Learning with minimal Communication" (IJCNN 2019; arXiv 1805.08768),
section IV; and table 3 of its version at OpenReview, with many clients."""

from lab.papers.declaration import (
    Curve,
    Kind,
    Number,
    Paper,
    Plot,
    Run,
    Scale,
    Settings,
    Table,
    measured_by,
)
from lab.papers.sbc import experiments

# Method: spec, and iterations from exchange to exchange; None: as the network's row has it.
METHODS: dict[str, tuple[str, int | None]] = {
    "baseline": ("fp32", 1),
    "gradient dropping": ("topk:k=0.1%", 1),
    "federated averaging": ("fp32", None),
    "SBC (1)": ("sbc:p=0.1%", 1),
    "SBC (2)": ("sbc:p=1%", 10),
    "SBC (3)": ("sbc:p=1%", 100),
}
# Table II: network: whether higher is better, federated averaging's delay, quality and compression
# by method. The paper's fifth network, ResNet50 on ImageNet, needs GPUs.
NETWORKS = {
    "LeNet5, MNIST": (
        *("lenet5", True, 500, (99.46, 99.4, 99.4, 99.4, 99.4, 99.1)),
        (1, 634, 500, 2071, 3491, 24935),
    ),
    "ResNet32, CIFAR-10": (
        *("resnet", True, 1000, (92.6, 92.7, 91.9, 92.3, 91.9, 92.2)),
        (1, 604, 1000, 1530, 3430, 32300),
    ),
    "WordLSTM, PTB": (
        *("wordlstm", False, 1000, (89.16, 89.39, 88.59, 89.32, 88.47, 89.31)),
        (1, 665, 1000, 2521, 3460, 34905),
    ),
    "CharLSTM, Shakespeare": (
        *("charlstm", False, 1000, (3.635, 3.639, 3.904, 3.671, 3.782, 4.072)),
        (1, 660, 1000, 2572, 3958, 35201),
    ),
}
# Table 3 (OpenReview), LeNet5 on MNIST, 2,500 iterations: clients, split, batch, accuracy by
# method.
CROWDS = {
    "100 clients, iid": (100, "iid", 8, (97.9, 98.11, 96.7, 97.9, 98.18, 95.36)),
    "400 clients, iid": (400, "iid", 2, (97.58, 97.44, 89.9, 97.31, 97.33, 89.19)),
    "100 clients, two classes": (100, "two", 8, (95.06, 94.98, 85.92, 95.22, 95.83, 83.44)),
}
CROWD_COMPRESSION = (1, 714, 100, 2363, 3165, 31655)
# Figure 3: every how many iterations, and the share that is sent.
DELAYS = (1, 10, 100)
SHARES = {"100 %": "fp32", "10 %": "sbc:p=10%", "1 %": "sbc:p=1%", "0.1 %": "sbc:p=0.1%"}


def _run(table: str, cell: str, kind: str, spec: str, delay: int, **more: object) -> Run:
    usual = {"spec": spec, "delay": delay, "clients": 4, "split": "iid", "batch": None}
    usual |= {"least": 256, "changes": {}}
    return Run(table, cell, kind, {**usual, **more})


def _runs() -> tuple[Run, ...]:
    runs = []
    for network, (kind, _, averaging, _, _) in NETWORKS.items():
        for method, (spec, delay) in METHODS.items():
            runs.append(_run("2", f"{network}, {method}", kind, spec, delay or averaging))
    for crowd, (clients, split, batch, _) in CROWDS.items():
        for method, (spec, delay) in METHODS.items():
            settings = {"clients": clients, "split": split, "batch": batch}
            key = f"{crowd}, {method}"
            runs.append(_run("3", key, "federated", spec, delay or 100, **settings))
    for delay in DELAYS:
        for share, spec in SHARES.items():
            runs.append(_run("fig3", f"every {delay}, {share}", "grid", spec, delay))
    return (*runs, *experiments.runs(_run))


def _rows(
    table: str, label: str, higher: bool, quality: tuple[float, ...], smaller: tuple[float, ...]
) -> list[tuple[str, tuple[Number | None, ...]]]:
    """Quality, the same relative to the baseline, and compression, by method."""
    names = [f"{label}, {method}" for method in METHODS]
    form = "{:.1f}" if higher else "{:.4g}"
    whole = [
        Number((table, name), "quality", paper, form=form)
        for name, paper in zip(names, quality, strict=True)
    ]
    base, how = (table, names[0]), "value-base" if higher else "value/base"
    relative: list[Number | None] = [None]
    for name, paper in zip(names[1:], quality[1:], strict=True):
        theirs = paper - quality[0] if higher else paper / quality[0]
        relative.append(
            Number(
                *((table, name), "quality", theirs, base, how, "higher" if higher else "lower"),
                *(0.5 if higher else 0.05, "{:+.2f}" if higher else "{:.3f}"),
            )
        )
    fewer: list[Number | None] = [None]
    for name, paper in zip(names[1:], smaller[1:], strict=True):
        fewer.append(Number((table, name), "smaller", paper, better="higher", form="{:,.0f}"))
    words = (
        ("accuracy, %", "points from the baseline")
        if higher
        else ("perplexity", "times the baseline's")
    )
    return [
        (f"{label}: {words[0]}", tuple(whole)),
        (f"{label}: {words[1]}", tuple(relative)),
        (f"{label}: times smaller", tuple(fewer)),
    ]


def _table2() -> Table:
    rows = []
    for label, (_, higher, _, quality, smaller) in NETWORKS.items():
        rows += _rows("2", label, higher, quality, smaller)
    return Table(
        number="2",
        title="Table II: four clients",
        head=("network", *METHODS),
        rows=tuple(rows),
        differs=(
            "A cell has the paper's number (of the IJCNN version), then ours; there are four "
            "clients, as in the paper. Times smaller divides 4 bytes for each value and iteration "
            "by the bytes of a client's frames, headers and small uncompressed tensors included. A "
            "delay is never longer than the scale's; with fewer iterations than the paper's, "
            "quality is that of a beginning. Here ResNet-20 stands for ResNet-32, and the LSTMs "
            "have no dropout; Shakespeare is the small corpus with 65 characters. A quality counts "
            "as near within half a point, or 5 % of the perplexity."
        ),
        because=experiments.reasons_of_table2(),
        plots=tuple(
            Plot(
                *(f"curve-{kind}", label, "iteration", "accuracy, %" if higher else "perplexity"),
                tuple(Curve(method, ("2", f"{label}, {method}")) for method in METHODS),
            )
            for label, (kind, higher, _, _, _) in NETWORKS.items()
        ),
    )


def _table3() -> Table:
    rows = []
    for label, (_, _, _, quality) in CROWDS.items():
        rows += _rows("3", label, True, quality, CROWD_COMPRESSION)
    return Table(
        number="3",
        title="Table 3: many clients, LeNet5 on MNIST",
        head=("clients", *METHODS),
        rows=tuple(rows),
        differs=(
            "As in the paper every client has Adam at 0.001, the same number of its own examples, "
            "and batches of 8, or of 2 with 400 clients; with two classes each has two shards of "
            "the examples sorted by class. Rows are named by the paper's number of clients."
        ),
        because=experiments.reasons_of_table3(),
    )


def _figure3() -> Table:
    return Table(
        number="fig3",
        title="Figure 3: temporal against gradient sparsity",
        head=("accuracy, %: exchange every", *(f"{share} sent" for share in SHARES)),
        rows=tuple(
            (
                f"{delay} iterations",
                tuple(
                    Number(("fig3", f"every {delay}, {share}"), "quality", form="{:.1f}")
                    for share in SHARES
                ),
            )
            for delay in DELAYS
        ),
        differs=(
            "The paper shows ResNet32 on CIFAR-10 after 60,000 iterations as a map of colours; it "
            "says that the error is about constant where the product of both sparsities is. Along "
            "such a diagonal (one row down, one column to the left) compare numbers."
        ),
    )


def _words(scale: Settings) -> str:
    crowd = f", {100 * scale['clients']:g} % of the clients" if scale["clients"] != 1 else ""
    half = ", computed in bfloat16" if scale.get("bf16") else ""
    return (
        f"{scale['workload']}: {scale['iterations']:,} iterations of each client (the paper: "
        f"{scale['paper']:,}){crowd}, batches of {scale['batch']}, {scale['optimizer']} at "
        f"{scale['lr']:g}, delays of at most {scale['longest']:,}{half}"
    )


_ADAM = {"optimizer": "adam", "lr": 0.001, "fall": 1, "at": (), "momentum": 0}
_LENET = {"workload": "lenet5/mnist", **_ADAM, "batch": 32}
_BASES: dict[str, dict] = {
    "lenet5": {**_LENET, "paper": 2000},
    "resnet": {
        **{"workload": "resnet20/cifar10", "optimizer": "sgd", "momentum": 0.9, "lr": 0.05},
        **{"fall": 0.1, "at": (0.5, 0.83), "batch": 8},
        "paper": 60_000,
    },
    "wordlstm": {
        **{"workload": "wordlstm/ptb", "optimizer": "sgd", "momentum": 0.0, "lr": 1.0},
        **{"fall": 0.8, "at": (0.4, 0.5, 0.6, 0.7, 0.8, 0.9), "batch": 5},
        "paper": 60_000,
    },
    "charlstm": {
        **{"workload": "charlstm/shakespeare", "optimizer": "sgd", "momentum": 0.0, "lr": 1.0},
        **{"fall": 0.8, "at": (0.31, 0.5, 0.62, 0.75, 0.87), "batch": 5},
        "paper": 16_000,
    },
    "federated": {**_LENET, "batch": 8, "paper": 2500},
    "grid": {**_LENET, "batch": 8, "paper": 60_000},
}


_SMALL_WORDS = {"workload": "wordlstm100/ptb"}
# Of experiments, at every scale but the smallest.
_TRIALS: dict[str, tuple[str, dict]] = {
    "resnet trial": ("resnet", {"iterations": 300, "test": 1000}),
    "wordlstm trial": ("wordlstm", {"iterations": 100, **_SMALL_WORDS}),
    "federated trial": ("federated", {"iterations": 100}),
    "lenet5 sizes": ("lenet5", {"iterations": 20, "batch": 8, "test": 10}),
    "charlstm sizes": ("charlstm", {"iterations": 20, "test": 200}),
    "resnet sizes": ("resnet", {"iterations": 100, "batch": 2, "test": 10}),
}
_MEASURE = measured_by("lab.papers.sbc.federated")
KINDS = {
    **{kind: Kind(_MEASURE, _words) for kind in _BASES},
    **{
        kind: Kind(
            _MEASURE,
            lambda scale: (
                f"{scale['workload']}, {scale['iterations']} iterations, batches of "
                f"{scale['batch']}"
            ),
        )
        for kind in _TRIALS
    },
}


def _scale(name: str, test: int, clients: float, **iterations: int | tuple[int, dict]) -> Scale:
    settings = {}
    for kind, given in iterations.items():
        count, more = given if isinstance(given, tuple) else (given, {})
        share = clients if kind == "federated" else 1
        usual = {"iterations": count, "longest": min(count, 1000), "clients": share}
        usual["test"] = test // 5 if kind == "resnet" else test  # whose evaluation is slow
        settings[kind] = {**_BASES[kind], **usual, **more}
    for kind, (base, more) in _TRIALS.items():
        usual = {"longest": 1000, "clients": 1, "test": 2000}
        settings[kind] = {**_BASES[base], **usual, **more}
        if name == "seconds":
            settings[kind] |= {"iterations": 2, "test": test}
    return Scale(name, settings)


_FEW_IMAGES = {"batch": 4}
_WHOLE = {"batch": 128}
_HALF = {"batch": 32, "bf16": True}
SCALES = (
    _scale(
        *("seconds", 200, 0.02),
        **{"lenet5": 4, "resnet": 2, "wordlstm": (2, _SMALL_WORDS), "charlstm": 2},
        **{"federated": 2, "grid": 2},
    ),
    *(
        _scale(
            *(name, test, 0.05),
            **{"lenet5": count, "resnet": (count, _FEW_IMAGES), "wordlstm": (count, _SMALL_WORDS)},
            **dict.fromkeys(("charlstm", "federated", "grid"), count),
        )
        for name, test, count in (("brief", 1000, 50), ("minutes", 2000, 100))
    ),
    _scale(
        *("hour", 10_000, 0.2),
        **{"lenet5": 1000, "resnet": 300, "wordlstm": (400, _SMALL_WORDS), "charlstm": 1000},
        **{"federated": 400, "grid": 500},
    ),
    _scale(
        *("hours", 10_000, 0.1),
        **{"lenet5": (2000, _WHOLE), "resnet": (5000, _HALF), "wordlstm": 1000, "charlstm": 16_000},
        **{"federated": 2500, "grid": 1000},
    ),
    _scale(
        *("nights", 10_000, 1),
        **{"lenet5": (2000, _WHOLE), "resnet": (10_000, {"batch": 32})},
        **{"wordlstm": 10_000, "charlstm": 16_000, "federated": 2500, "grid": 2000},
    ),
)
PAPER = Paper(
    name="sbc",
    title="SBC's tables and figures",
    source=(
        'F. Sattler, S. Wiedemann, K.-R. Müller, W. Samek, "Sparse Binary Compression: Towards '
        'Distributed Deep Learning with minimal Communication" (IJCNN 2019), section IV, and table '
        "3 of its version at OpenReview."
    ),
    scales=SCALES,
    kinds=KINDS,
    runs=_runs(),
    tables=(_table2(), _table3(), _figure3(), experiments.table()),
    left_out=(
        ("ResNet50 on ImageNet (table II, figure 5), ResNet18", "weeks of two cores"),
        ("Figure 4", "figure 3's sparsities after other numbers of iterations; no numbers"),
        ("Figure 9", "figure 3 with WordLSTM; no numbers"),
    ),
)
