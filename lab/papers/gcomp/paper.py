"""GComp's evaluation: X. Li, C. Guo, K. Qian, M. Zhang, M. Yang, M. Xu, "Near-Lossless Gradient
Compression for Data-Parallel Distributed DNN Training" (SoCC 2024), section 7: four instances with
an A100 each, 10 Gbit/s. For figures, only the numbers in the paper's text are known."""

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
from lab.ranks.links import link_in_words

# ResNet-20 stands for the paper's ResNet-50, and an encoder of sentences for BERT-base: figure 9's
# mean shares of float32.
RESNET, ENCODER = "ResNet-20, CIFAR-10", "encoder, SST-2, AdamW, 600 steps of 32"
SHARES = {"ResNet-50": 32.9, "BERT-base": 36.5}
RATES = {"SGD": 0.1, "AdamW": 0.002}  # of ResNet-20
# So many steps that it learns something.
ENCODERS = {"workers": 1, "batch": 32, "steps": 600}
LAST_BIT = f"{RESNET}, SGD, the last bit"
# A tenth and a hundredth of the learning rate: whether the share is a matter of the rate.
SLOWER = {"a tenth of the rate": 0.1, "a hundredth": 0.01}
# Figure 10: time relative to no compression; the paper says of zstd and zlib that they are slower
# than none.
METHODS = {
    "none (Gloo's ring)": "plain",
    "none, `ring(fp32)`": "ring(fp32)",
    "GComp, `ring(gcomp)`": "ring(gcomp)",
    "zstd, `direct(zstd)`": "direct(zstd)",
    "zlib, `direct(zlib)`": "direct(zlib)",
    "18-bit cut, `ring(truncate:bits=14)`": "ring(truncate:bits=14)",
    "18-bit cut and Huffman, `ring(gcomp:cut=18)`": "ring(gcomp:cut=18)",
}
PLAIN = "none (Gloo's ring)"
GCOMP = "GComp, `ring(gcomp)`"
WORKERS = (1, 2, 3, 4)
SLOW = "100 Mbit/s"  # a link so slow that coding takes little of the time
# Figure 17 by the planner: trace, parameters, milliseconds of computing, gains at 4 and 128 ranks.
PLANS = {
    "ResNet-50": ("resnet20-sgd", 23_600_000, 12, (53.4, 35.3)),
    "BERT-base": ("transformer-adam", 110_000_000, 13, (107.0, 70.8)),
}
RANKS = (4, 8, 16, 32, 64, 128, 1024)
LINKS = {"10 Gbit/s": "10gbit", "1 Gbit/s": "1gbit"}


def _training(cell: str, optimizer: str, **more: object) -> Run:
    usual: dict[str, object] = {"workload": "resnet20/cifar10", "rates": RATES, "changes": {}}
    usual |= {"optimizer": optimizer, "ways": ("gcomp", "cut", "skip")}
    return Run("fig9", cell, "training", {**usual, **more})


def _runs() -> tuple[Run, ...]:
    runs = []
    for optimizer in RATES:
        runs.append(_training(f"{RESNET}, {optimizer}", optimizer))
    for words, factor in SLOWER.items():
        slower = {name: factor * rate for name, rate in RATES.items()}
        runs.append(_training(f"{RESNET}, {words}", "SGD", rates=slower))
    encoder = {"workload": "encoder/sst2", "rates": {"AdamW": 0.001}, "changes": ENCODERS}
    runs.append(_training(ENCODER, "AdamW", **encoder))
    runs.append(_training(LAST_BIT, "SGD", ways=("last bit",)))
    for name, spec in METHODS.items():
        cell = {"spec": spec, "whole_steps": False, "workers": None}
        runs.append(Run("fig10", name, "link", {**cell, "link": None}))
        runs.append(Run("fig10", f"{name}, {SLOW}", "link", {**cell, "link": "100mbit"}))
    for name in (PLAIN, GCOMP):
        cell = {"spec": METHODS[name], "whole_steps": True}
        for workers in WORKERS:
            settings = {**cell, "workers": workers, "link": None}
            runs.append(Run("fig16", f"{name}, {workers}", "link", settings))
        settings = {**cell, "workers": WORKERS[-1], "link": "100mbit"}
        runs.append(Run("fig16", f"{name}, {WORKERS[-1]}, {SLOW}", "link", settings))
    for network, (trace, parameters, compute, _) in PLANS.items():
        for words, link in LINKS.items():
            cell = {"trace": trace, "parameters": parameters, "compute_ms": compute}
            cell |= {"link": link, "ranks": RANKS}
            runs.append(Run("fig17", f"{network}, {words}", "plan", cell))
    return tuple(runs)


def _figure9() -> Table:
    rows: list[tuple[str, tuple[Number | None, ...]]] = []
    for name in (*RATES, *SLOWER):
        key, paper = ("fig9", f"{RESNET}, {name}"), SHARES["ResNet-50"] if name in RATES else None
        share = Number(key, "share", paper, better="lower", form="{:.1f}")
        at = "" if name in RATES else "SGD at "
        rows.append((f"{RESNET} (ResNet-50), {at}{name}", (share, None, *_more_of(key), None)))
    key = ("fig9", ENCODER)
    shares = (
        Number(key, "share", form="{:.1f}"),
        Number(key, "dense_share", SHARES["BERT-base"], better="lower", form="{:.1f}"),
    )
    accuracy = Number(key, "quality", form="{:.1f}")
    rows.append((f"{ENCODER} (BERT-base)", (*shares, *_more_of(key), accuracy)))
    return Table(
        number="fig9",
        title="Figure 9: volume, % of float32",
        head=(
            *("network", "all steps", "without the embedding", "last twelfth", "`levels=4`"),
            *("first loss", "last loss", "accuracy, %"),
        ),
        rows=tuple(rows),
        differs=(
            "Every worker's gradient is encoded alone, with the optimizer's significance. "
            "`levels=4` has the paper's steps of 6 bits. The rows with smaller rates show how much "
            "the share depends on them; the paper doesn't say at which rates it trained. "
            "Three fifths of the encoder's values are its embedding, of whose rows few have a "
            "gradient in a step; of BERT's a fifth. So the other tensors are judged. It has one "
            "worker, and a rate of 0.001."
        ),
        because=(
            Reason(
                (*(f"{RESNET} (ResNet-50), {name}" for name in RATES), f"{ENCODER} (BERT-base)"),
                ("all steps", "without the embedding"),
                "How much is cut depends on how small a step is relative to the weight that it "
                "changes: the share falls with the rate, along the cosine (last twelfth) and with "
                "rates a tenth and a hundredth as high. `gcomp` does not cut less than the paper's "
                "rule: `levels=4` is larger in every row.",
                tuple(
                    ("fig9", cell, "minutes")
                    for cell in (*(f"{RESNET}, {name}" for name in (*RATES, *SLOWER)), ENCODER)
                ),
            ),
        ),
        plots=(
            Plot(
                *("share", "Volume by step", "step", "% of float32"),
                tuple(
                    Curve(cell, ("fig9", cell), "share_curve")
                    for cell in (*(f"{RESNET}, {name}" for name in RATES), ENCODER)
                ),
            ),
        ),
    )


def _more_of(key: tuple[str, str]) -> tuple[Number, ...]:
    shares = (Number(key, name, form="{:.1f}") for name in ("last_share", "paper_share"))
    return (*shares, *(Number(key, name) for name in ("first_loss", "last_loss")))


def _figure10() -> Table:
    rows = []
    for name in METHODS:
        cells: list[Number | None] = []
        for rate, paper in (("", 0.616), (f", {SLOW}", None)):
            key, base = ("fig10", name + rate), ("fig10", PLAIN + rate)
            theirs = paper if name == GCOMP else None
            ratio = Number(key, "ms", theirs, base, "value/base", "lower")
            cells += [Number(key, "ms"), None if name == PLAIN else ratio]
        rows.append((name, tuple(cells)))
    return Table(
        number="fig10",
        title="Figure 10: time of an all-reduce",
        head=("method", "ms", "relative to none", f"{SLOW}: ms", "relative to none"),
        rows=tuple(rows),
        differs=(
            "The paper has 61.6 % for ResNet-50 and 47.0 % for BERT-base with GComp, and says that "
            "zstd and zlib take longer than no compression; over 10 Gbit/s, with 12 cores for each "
            "worker, where here all share this machine's. Over 100 Mbit/s, where coding takes a "
            "small part of the time, the ratio is nearly that of the bytes."
        ),
    )


def _figure16() -> Table:
    rows: list[tuple[str, tuple[Number | None, ...]]] = []
    for workers in (*map(str, WORKERS), f"{WORKERS[-1]}, {SLOW}"):
        plain, gcomp = (("fig16", f"{name}, {workers}") for name in (PLAIN, GCOMP))
        gain = Number(
            *(gcomp, "samples_per_second", 1.534 if workers == "4" else None, plain),
            how="value/base",
            better="higher",
        )
        seconds = (Number(key, "samples_per_second", form="{:,.0f}") for key in (plain, gcomp))
        cells = (*seconds, gain)
        rows.append((workers, cells))
    return Table(
        number="fig16",
        title="Figures 15 and 16: samples a second of 1 to 4 workers",
        head=("workers", "none", "GComp", "GComp over none"),
        rows=tuple(rows),
        differs=(
            "The paper gains 53.4 % for ResNet-50 and 107 % for BERT-base with four workers. Here "
            "further workers share this machine's cores."
        ),
    )


def _figure17() -> Table:
    rows = []
    for network, (_, _, compute, gains) in PLANS.items():
        theirs = {4: gains[0], 128: gains[1]}
        for words in LINKS:
            key = ("fig17", f"{network}, {words}")
            papers = theirs if words == "10 Gbit/s" else {}
            cells = tuple(
                Number(*(key, f"gain{ranks}", papers.get(ranks)), better="higher", form="{:+.0f}")
                for ranks in RANKS
            )
            bits, below = Number(key, "bits"), Number(key, "pays_below4")
            rows.append((f"{network}, {compute} ms, {words}", (bits, *cells, below)))
    return Table(
        number="fig17",
        title="Figure 17: many ranks, predicted",
        head=(
            "model, computing, link",
            "bits a value",
            *(f"{ranks} ranks: %" for ranks in RANKS),
            "pays below, Gbit/s (4 ranks)",
        ),
        rows=tuple(rows),
        differs=(
            "Percent more samples a second. The paper simulated 4 to 128 workers with four. "
            "`deltawire plan` has the paper's number of parameters and cores, the values of small "
            "traces (ResNet-20 and a transformer, at the beginning of training), this machine's "
            "time to encode and decode a value, and links that reach their rate. "
            "The time of computing follows from the paper's figures 10 and 16 and the time that "
            "four ranks need for float32 over 10 Gbit/s: (computing + all-reduce) is 1.534 times "
            "(computing + 0.616 all-reduce) for ResNet-50, 2.07 times (computing + 0.47 "
            "all-reduce) for BERT-base."
        ),
        because=(
            Reason(
                tuple(
                    f"{network}, {compute} ms, 10 Gbit/s"
                    for network, (_, _, compute, _) in PLANS.items()
                ),
                ("4 ranks: %",),
                "The paper's gradients took 10.5 and 12 bits a value, these, of the beginning of a "
                "training, 20: at a tenth of the rate, where coding costs little, `gcomp` gains 32 "
                "over the bits a value. At 10 Gbit/s four ranks also wait for encoding, by one "
                "thread for each part of a bucket; it pays below the rate in the last column.",
                tuple(("fig17", f"{n}, {link}", "minutes") for n in PLANS for link in LINKS),
            ),
        ),
    )


def _figure18() -> Table:
    rows: list[tuple[str, tuple[Number | None, ...]]] = []
    for cell in (*(f"{RESNET}, {name}" for name in RATES), ENCODER):
        key = ("fig9", cell)
        cells = (
            *(Number(key, f"{way}_variance") for way in ("gcomp", "cut", "skip")),
            Number(key, "less_than_cut", 73.6, better="higher", form="{:.1f}"),
            Number(key, "less_than_skip", 77.4, better="higher", form="{:.1f}"),
        )
        rows.append((cell, cells))
    bit = Number(("fig9", LAST_BIT), "last bit_variance")
    rows.append((LAST_BIT, (bit, *[None] * 4)))
    return Table(
        number="fig18",
        title="Figure 18: deviations of the loss",
        head=(
            "network",
            *("GComp", "18-bit cut", "every eighth"),
            *("% less than the cut", "% less than every eighth"),
        ),
        rows=tuple(rows),
        differs=(
            "The mean square of the difference to the loss without compression, on the same "
            "batches; the paper's variances are 73.6 to 93.1 % smaller than with the cut, and 77.4 "
            "to 96.8 % than with an exchange every eighth iteration; its smaller numbers are "
            "shown. Every eighth iteration here applies the mean of eight batches. In the last row "
            "only the last bit of every gradient is cleared."
        ),
        because=(
            Reason(
                (f"{RESNET}, SGD",),
                ("% less than the cut",),
                "Small differences grow, whatever made them: clearing the last bit of every "
                "gradient changes the loss as much as GComp does.",
                (("fig9", LAST_BIT, "minutes"), ("fig9", f"{RESNET}, SGD", "minutes")),
            ),
        ),
    )


def _training_words(scale: Settings) -> str:
    return (
        f"{scale['workers']} workers in one process, batches of {scale['batch']}, "
        f"{scale['steps']:,} steps (the paper: 2,000 and 1,000), rates that fall along a cosine"
    )


def _link_words(scale: Settings) -> str:
    return (
        f"{scale['workers']} workers with DDP, processes of this machine in network namespaces "
        f"behind real {link_in_words(scale['link'])} (or {SLOW}), LeNet5 on Fashion-MNIST, "
        f"batches of 64, "
        f"gradients from the beginning of training, the median of {scale['steps']} steps"
    )


KINDS = {
    "training": Kind(measured_by("lab.papers.gcomp.deviation"), _training_words),
    "link": Kind(measured_by("lab.papers.gcomp.exchange"), _link_words),
    "plan": Kind(
        measured_by("lab.papers.gcomp.plan"),
        lambda scale: f"codecs timed for {scale['seconds']:g} s each",
    ),
}


def _scale(name: str, training: dict, steps: int, seconds: float) -> Scale:
    link = {"workers": 4, "link": "1gbit", "size": "large", "steps": steps}
    if name == "seconds":
        link |= {"workers": 2, "size": "small"}
    plan = {"seconds": seconds, "record": "5,100,300"}
    if name == "seconds":
        plan["record"] = "1-3"
    return Scale(name, {"training": {"batch": 8, **training}, "link": link, "plan": plan})


SCALES = (
    _scale("seconds", {"workers": 1, "steps": 3}, 3, 0.05),
    _scale("minutes", {"workers": 2, "steps": 100}, 15, 0.2),
    _scale("hour", {"workers": 4, "steps": 400}, 40, 0.5),
    _scale("hours", {"batch": 32, "workers": 4, "steps": 1000}, 100, 0.5),
    _scale("night", {"batch": 32, "workers": 4, "steps": 2000}, 200, 0.5),
)
PAPER = Paper(
    name="gcomp",
    title="GComp's tables and figures",
    source=(
        'X. Li, C. Guo, K. Qian, M. Zhang, M. Yang, M. Xu, "Near-Lossless Gradient Compression for '
        'Data-Parallel Distributed DNN Training" (SoCC 2024), section 7.'
    ),
    scales=SCALES,
    kinds=KINDS,
    runs=_runs(),
    tables=(_figure9(), _figure10(), _figure16(), _figure17(), _figure18()),
    left_out=(
        ("ResNet-50 on ImageNet, BERT-base", "days of a GPU; ResNet-20 and an encoder are here"),
        ("Figure 11", "the load of processors beside GPUs; here processors train, too"),
        (
            "Figures 12 and 14",
            "what tables made for other gradients, levels and zeros contribute: the text has no "
            "numbers; `levels=4` is in figure 9",
        ),
        (
            "Figure 13",
            "tables and decoders of the authors' own; here each chunk has a table, and only the "
            "decoder by lookup exists",
        ),
        ("Figures 19 and 20", "curves, and times over 10 Gbit/s, of figure 18's trainings"),
    ),
)
