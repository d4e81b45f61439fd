"""FastSGD's evaluation: K. Yang, L. Chen, Z. Zeng, Y. Gao, "FastSGD: A Fast Compressed SGD
Framework for Distributed Machine Learning" (arXiv 2112.04291), section 4, on 12 nodes of 24 cores
with links of 1 Gbit/s."""

from lab.papers.declaration import Kind, Paper, Scale, Settings, measured_by
from lab.papers.fastsgd.tables import make_runs, make_tables
from lab.ranks.links import link_in_words

_SHAPES = {  # a data set's name, and its rows and features in the paper
    "kdd12": ("KDD12", 149_639_105, 54_686_452),
    "webspam": ("WebSpam", 350_000, 16_609_143),
}


def _training_words(scale: Settings) -> str:
    rates = ", ".join(f"{rate:g}" for rate in scale["rates"])
    best = f"the best rate of {rates} for each method" if len(scale["rates"]) > 1 else rates
    name, rows, features = _SHAPES[scale["shape"]]
    return (
        f"{scale['rows']:,} rows shaped like {name}'s (the paper: {rows:,}) of "
        f"{scale['features']:,} features ({features:,}), {scale['workers']} workers behind "
        f"{link_in_words(scale['link'])}, {scale['epochs']} epochs, batches of 10 %, Adam at {best}"
    )


KINDS = {
    "epochs": Kind(measured_by("lab.papers.fastsgd.trainings"), _training_words),
    "convergence": Kind(measured_by("lab.papers.fastsgd.trainings"), _training_words),
    "webspam": Kind(measured_by("lab.papers.fastsgd.trainings"), _training_words),
    "keys": Kind(
        measured_by("lab.papers.fastsgd.keys"),
        lambda scale: (
            f"7 % of {scale['rows']:,} rows shaped like KDD12's, of {scale['features']:,} "
            f"features, for {scale['workers']} workers"
        ),
    ),
    "network": Kind(
        measured_by("lab.papers.fastsgd.network"),
        lambda scale: (
            f"MNIST, {scale['workers']} workers in one process, batches of {scale['batch']}, "
            f"{scale['steps']:,} steps"
        ),
    ),
}


# The paper's rule where time allows, at figures that compare qualities.
_GRID = (0.02, 0.05, 0.1)


def _scale(
    name: str,
    rows: int,
    epochs: tuple[int, int],
    steps: int,
    test: int,
    rates: tuple[float, ...] = _GRID,
) -> Scale:
    features = round(5.468646 * rows)  # more a row than KDD12's 0.365: gradients are as sparse
    data = {"workers": 4, "link": "100mbit", "shape": "kdd12", "rows": rows, "features": features}
    few = max(100, rows // 25)  # a row has 3,728 features
    _, their_rows, their_features = _SHAPES["webspam"]
    webspam = {"shape": "webspam", "rows": few, "rates": (0.005,)}  # the grid's are too high
    webspam |= {"features": round(few * their_features / their_rows)}
    return Scale(
        name,
        {
            "epochs": {**data, "epochs": epochs[0], "rates": (0.05,)},
            "convergence": {**data, "epochs": epochs[1], "rates": rates},
            "webspam": {**data, **webspam, "epochs": epochs[1]},
            "keys": data,
            "network": {"workers": 4, "batch": 32, "steps": steps, "test": test, "lr": 0.02},
        },
    )


SCALES = (
    _scale("seconds", 2000, (1, 2), 6, 200, rates=(0.05,)),
    _scale("minutes", 50_000, (2, 8), 150, 2000, rates=(0.05,)),
    _scale("hour", 200_000, (3, 12), 1000, 10_000),
    _scale("hours", 1_000_000, (3, 20), 3000, 10_000),
    _scale("night", 10_000_000, (3, 20), 10_000, 10_000, rates=(0.05,)),
)
PAPER = Paper(
    name="fastsgd",
    title="FastSGD's tables and figures",
    source=(
        'K. Yang, L. Chen, Z. Zeng, Y. Gao, "FastSGD: A Fast Compressed SGD Framework for '
        'Distributed Machine Learning" (arXiv 2112.04291), section 4.'
    ),
    scales=SCALES,
    kinds=KINDS,
    runs=make_runs(),
    tables=make_tables(),
    left_out=(
        ("URL, KDD10 in figures 8 and 9", "no numbers in the text; KDD12 and WebSpam are here"),
        ("the data sets themselves", "hundreds of gigabytes; rows of the same shape are drawn"),
    ),
)
