"""What the ranks' reports make of a row: the definitions of every number in results.json."""

import statistics

from lab.demo.methods import BASE, PLAIN, Method
from lab.demo.settings import Settings
from lab.ranks.links import ring_bytes

_TIMES = ("ms_per_step", "compute_ms", "encode_ms", "exchange_ms", "decode_ms")
_NUMBERS = ("accuracy", *_TIMES, "wire_mb_per_rank")  # of a training, and their medians of a row
ROW_KEYS = (
    "method",
    "momentum",
    "learning_rate",
    "accuracy",
    "accuracy_range",
    "steps",
    "ms_per_step",
    "ms_per_step_range",
    "compute_ms",
    "encode_ms",
    "exchange_ms",
    "decode_ms",
    "wire_mb_per_rank",
    "times_smaller",
    "bits_per_value",
    "times_faster",
    "bit_equal",
    "failed",
)

_BUSY = 1.2  # times the computation of the quietest training
_LOAD = 1.5  # times the cores; building the demo just before leaves a load of 1

DEFINITIONS = {
    "momentum, learning_rate": "of the row's SGD, the rate at the first step. Rows whose codec "
    "sends most of a gradient in later steps have no momentum and a higher rate: with momentum "
    "they diverge",
    "accuracy": "share of all test images that is right after the last step, 0 ... 1",
    "steps": "training steps; in each, every rank takes one batch",
    "ms_per_step": "wall-clock milliseconds of a step, from taking the batch to the updated "
    "parameters: median over the steps of a rank, then median over the ranks",
    "accuracy_range, ms_per_step_range": "smallest and largest of the row's trainings, which "
    "differ in the seed alone; every other number of a row is their median, and detail.repeats "
    "has them one by one",
    "compute_ms": "milliseconds of a step without exchange (batch, forward, backward): median of a "
    "few steps before training, on all ranks at once",
    "encode_ms, exchange_ms, decode_ms": "milliseconds of a step that the exchange spent encoding, "
    "waiting for the link and other ranks, and decoding; medians like ms_per_step. They overlap "
    "with the computation, so the parts may add up to more than the step. For plain DDP "
    "exchange_ms is the time that its buckets were on their way",
    "wire_mb_per_rank": "megabytes (10^6 bytes) that a rank sent in a whole training, every copy "
    "counted, with headers and uncompressed tensors; mean over the ranks. For plain DDP "
    "calculated: 2 (N-1)/N x 4 bytes x values x steps",
    "times_smaller": "megabytes that our fp32 sent per rank / the row's, whatever the patterns; "
    "where fp32 did not run, 2 (N-1)/N x 4 bytes x values x steps stand for it",
    "bits_per_value": "what an encoded tensor takes for each value and training step, headers and "
    "uncompressed tensors counted: 8 x bytes sent / (copies x values x steps), where a rank sends "
    "2 (N-1)/N copies of a tensor by direct and ring, and N-1 by gather",
    "times_faster": "ms_per_step of our fp32 / the row's. Beside it 'than plain': plain DDP's "
    "ms_per_step / the row's",
    "bit_equal": "in every training all ranks ended with the same parameters, bit for bit, and "
    "applied the same means in every step",
    "failed": "null, or why the row has no numbers: one of its trainings failed",
}


def label_of(method: Method, settings: Settings) -> str:
    """The row's name for people; it says when the link is modelled, and where the row's optimizer
    isn't the others'."""
    if method.name == PLAIN and settings.bytes_per_second is not None:
        return f"{method.label} ({'real link' if settings.namespaces else 'modelled'})"
    return method.label + own_optimizer(method, settings)


def own_optimizer(method: Method, settings: Settings) -> str:
    """What stands behind the name of a row whose optimizer isn't the others': ", momentum 0, rate x
    5"; else nothing."""
    own = settings.of_row(method)
    if (own.momentum, own.lr) == (settings.momentum, settings.lr):
        return ""
    return f", momentum {own.momentum:g}, rate x {own.lr / settings.lr:.2g}"


def canonical(spec: str | None) -> str | None:
    """The spec with its pattern and every parameter; None for plain DDP."""
    if spec is None:
        return None
    import deltawire  # here: a run of plain DDP alone does without

    return deltawire.canonical_spec(spec)


def make_repeat(seed: int, reports: list[dict]) -> dict:
    """One training of a row, from the reports of all ranks."""
    return {
        "seed": seed,
        "accuracy": reports[0]["accuracy"],
        **{key: statistics.median(report[key] for report in reports) for key in _TIMES},
        "wire_mb_per_rank": statistics.fmean(report["bytes_sent"] for report in reports) / 1e6,
        "bit_equal": all_equal(reports, "parameters") and all_equal(reports, "digests"),
        "failed": None,
        "curve": _curve_of_ranks([report["points"] for report in reports]),
    }


def failed_repeat(seed: int, error: str) -> dict:
    """A training of which there is nothing but the reason."""
    numbers = dict.fromkeys((*_NUMBERS, "bit_equal"))
    return {"seed": seed, **numbers, "failed": error, "curve": []}


def make_row(method: Method, repeats: list[dict], settings: Settings) -> dict:
    """A row from its trainings, one at least; ratios to other rows are left for `add_ratios`."""
    row = dict.fromkeys(ROW_KEYS)
    own = settings.of_row(method)
    row.update(method=method.name, steps=settings.steps)
    row.update(momentum=own.momentum, learning_rate=own.lr)
    row["detail"] = detail = {
        "label": label_of(method, settings),
        "own_optimizer": own_optimizer(method, settings),
        "spec": method.spec,
        "times_faster_than_plain": None,
        "curve": [],
        "repeats": repeats,
    }
    failed = [repeat for repeat in repeats if repeat["failed"]]
    if failed:
        row["failed"] = "; ".join(_of_seed(settings, it) + it["failed"] for it in failed)
        return row
    for key in _NUMBERS:
        row[key] = statistics.median(repeat[key] for repeat in repeats)
    for key in ("accuracy", "ms_per_step"):
        values = [repeat[key] for repeat in repeats]
        row[f"{key}_range"] = [min(values), max(values)]
    tensors_sent = (
        1e6 * row["wire_mb_per_rank"] / (4 * settings.workload.parameters * settings.steps)
    )
    row["times_smaller"] = ring_bytes(1, settings.ranks) / tensors_sent
    row["bits_per_value"] = 32 * tensors_sent / copies_sent(settings.ranks, method.pattern)
    row["bit_equal"] = all(repeat["bit_equal"] for repeat in repeats)
    detail["spec"] = canonical(method.spec)
    detail["curve"] = _curve_of_repeats([repeat["curve"] for repeat in repeats])
    return row


def copies_sent(world_size: int, pattern: str) -> float:
    """How many times a rank sends each value: "direct", "ring" or "gather"."""
    return world_size - 1 if pattern == "gather" else ring_bytes(1, world_size)


def load_warnings(load_before: float, cores: int) -> list[str]:
    """A line where the machine had other work when the demo began, which may disturb all rows."""
    if load_before <= _LOAD * cores:
        return []
    return [
        f"the machine was busy: its load was {load_before:.1f} on {cores} cores before the demo "
        "began, so all times may be too long; run it on an idle machine"
    ]


def busy_warnings(rows: list[dict], settings: Settings) -> list[str]:
    """A line for each seed at which the machine had other work, so that times don't compare."""
    trained = [it for row in rows for it in row["detail"]["repeats"] if not it["failed"]]
    trained.sort(key=lambda repeat: repeat["compute_ms"])
    quietest = trained[0]["compute_ms"] if trained else 0.0
    slowest = {repeat["seed"]: repeat for repeat in trained}  # of each seed the last
    return [
        f"{_of_seed(settings, repeat)}the machine was busy: computing alone took "
        f"{repeat['compute_ms']:.0f} ms a step in one row and {quietest:.0f} ms in another, so the "
        "times don't compare; run it on an idle machine"
        for _, repeat in sorted(slowest.items())
        if repeat["compute_ms"] > _BUSY * quietest
    ]


def add_ratios(rows: list[dict]) -> None:
    """Fills what compares a row with another one, where that one is there."""
    times = {row["method"]: row["ms_per_step"] for row in rows}
    sent = {row["method"]: row["wire_mb_per_rank"] for row in rows}
    for row in rows:
        own = row["ms_per_step"]
        if own is None:
            continue
        if sent.get(BASE) is not None:
            row["times_smaller"] = sent[BASE] / row["wire_mb_per_rank"]
        if times.get(BASE) is not None:
            row["times_faster"] = times[BASE] / own
        if times.get(PLAIN) is not None:
            row["detail"]["times_faster_than_plain"] = times[PLAIN] / own


def all_equal(reports: list[dict], key: str) -> bool:
    """Whether all ranks report the same."""
    return len({report[key] for report in reports}) == 1


def _of_seed(settings: Settings, repeat: dict) -> str:
    return f"seed {repeat['seed']}: " if settings.repeats > 1 else ""


def _curve_of_ranks(points_of_ranks: list[list[dict]]) -> list[dict]:
    """Accuracy after so many steps, mean seconds of training and megabytes per rank."""
    return [
        {
            **points[0],
            **{key: statistics.fmean(p[key] for p in points) for key in ("seconds", "wire_mb")},
        }
        for points in zip(*points_of_ranks, strict=True)
    ]


def _curve_of_repeats(curves: list[list[dict]]) -> list[dict]:
    """Medians of a row's trainings, and accuracy_range."""
    merged = []
    for points in zip(*curves, strict=True):
        accuracies = [point["accuracy"] for point in points]
        medians = {key: statistics.median(p[key] for p in points) for key in points[0]}
        medians["step"] = points[0]["step"]
        merged.append({**medians, "accuracy_range": [min(accuracies), max(accuracies)]})
    return merged
