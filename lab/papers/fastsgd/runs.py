"""The runs of FastSGD's evaluation: methods, and what each table and figure varies."""

from lab.papers.declaration import Run

LOSSES = {"Linear": "squared", "LR": "logistic", "SVM": "hinge"}
FASTSGD = "fastsgd:tau=128"
CODECS = {
    "Adam": "plain",
    "LogQuant": "logquant",
    "SketchML": "sketchml",
    "Top-k": "topk:k=0.1%",
    "FastSGD": FASTSGD,
}
# Lossless methods that send less than plain pairs: each weight has an owner, and keys are gaps of
# about a byte; and the same with values compressed by zstd.
OWNERS = {
    "fp32, owners": "owners(fp32 back fp32)",
    "zstd, owners": "owners(zstd back zstd)",
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


def _run(table: str, cell: str, codec: str, loss: str, kind: str = "epochs", **more: object) -> Run:
    usual = {"codec": codec, "loss": LOSSES[loss], "features": 1.0, "workers": None}
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
        for name, spec in {**CODECS, **OWNERS}.items():
            runs.append(_run("7", f"{loss}, {name}", spec, loss, kind="convergence"))
    for name, spec in CODECS.items():
        for count in COUNTS:
            runs.append(_run("fig9", f"{name}, {count}", spec, "SVM", workers=count))
        runs.append(Run("fig10", name, "network", {"codec": "fp32" if name == "Adam" else spec}))
    return tuple(runs)
