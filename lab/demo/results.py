"""What the ranks' reports make of a row: the definitions of every number in results.json."""

import statistics

from lab.demo.settings import Settings
from lab.lenet import PARAMETER_COUNT
from lab.links import ring_bytes
from lab.methods import BASE, PLAIN, Method

ROW_KEYS = (
    "method",
    "accuracy",
    "steps",
    "ms_per_step",
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

_BUSY = 1.2  # times the computation of the quietest row

DEFINITIONS = {
    "accuracy": "share of all test images that is right after the last step, 0 ... 1",
    "steps": "training steps; in each, every rank takes one batch",
    "ms_per_step": "wall-clock milliseconds of a step, from taking the batch to the updated "
    "parameters: median over the steps of a rank, then median over the ranks",
    "compute_ms": "milliseconds of a step without exchange (batch, forward, backward): median of a "
    "few steps before training, on all ranks at once",
    "encode_ms, exchange_ms, decode_ms": "milliseconds of a step that the exchange spent encoding, "
    "waiting for the link and other ranks, and decoding; medians like ms_per_step. They overlap "
    "with the computation, so the parts may add up to more than the step. For plain DDP "
    "exchange_ms is the time that its buckets were on their way",
    "wire_mb_per_rank": "megabytes (10^6 bytes) that a rank sent in the whole row, every copy "
    "counted, with headers and uncompressed tensors; mean over the ranks. For plain DDP "
    "calculated: 2 (N-1)/N x 4 bytes x values x steps",
    "times_smaller": "megabytes that our fp32 sent per rank / the row's, whatever the patterns; "
    "where fp32 did not run, 2 (N-1)/N x 4 bytes x values x steps stand for it",
    "bits_per_value": "what an encoded tensor takes for each value and training step, headers and "
    "uncompressed tensors counted: 8 x bytes sent / (copies x values x steps), where a rank sends "
    "2 (N-1)/N copies of a tensor by direct and ring, and N-1 by gather",
    "times_faster": "ms_per_step of our fp32 / the row's. Beside it 'than plain': plain DDP's "
    "ms_per_step / the row's",
    "bit_equal": "all ranks ended with the same parameters, bit for bit, and applied the same "
    "means in every step",
    "failed": "null, or why the row has no numbers",
}


def label_of(method: Method, settings: Settings) -> str:
    """The row's name for people; it says when the link is modelled."""
    if method.name == PLAIN and settings.bytes_per_second is not None:
        return f"{method.label} ({'real link' if settings.namespaces else 'modelled'})"
    return method.label


def canonical(spec: str | None) -> str | None:
    """The spec with its pattern and every parameter; None for plain DDP."""
    if spec is None:
        return None
    import deltawire  # here: a run of plain DDP alone does without

    return deltawire.canonical_spec(spec)


def make_row(method: Method, reports: list[dict], settings: Settings) -> dict:
    """A row from the reports of all ranks; ratios to other rows are left for `add_ratios`."""
    bytes_sent = statistics.fmean(report["bytes_sent"] for report in reports)
    row = dict.fromkeys(ROW_KEYS)
    row.update(
        method=method.name,
        accuracy=reports[0]["accuracy"],
        steps=settings.steps,
        wire_mb_per_rank=bytes_sent / 1e6,
        times_smaller=ring_bytes(4 * PARAMETER_COUNT, settings.ranks) * settings.steps / bytes_sent,
        bits_per_value=8
        * bytes_sent
        / settings.steps
        / PARAMETER_COUNT
        / copies_sent(settings.ranks, method.pattern),
        bit_equal=all_equal(reports, "parameters") and all_equal(reports, "digests"),
    )
    for key in ("ms_per_step", "compute_ms", "encode_ms", "exchange_ms", "decode_ms"):
        row[key] = statistics.median(report[key] for report in reports)
    row["detail"] = {
        "label": label_of(method, settings),
        "spec": canonical(method.spec),
        "times_faster_than_plain": None,
        "training_seconds": reports[0]["points"][-1]["seconds"],
        "curve": _mean_curve([report["points"] for report in reports]),
    }
    return row


def failed_row(method: Method, error: str, settings: Settings) -> dict:
    """A row of which there is nothing but the reason."""
    row = dict.fromkeys(ROW_KEYS)
    row.update(method=method.name, steps=settings.steps, failed=error)
    row["detail"] = {
        "label": label_of(method, settings),
        "spec": method.spec,
        "times_faster_than_plain": None,
        "training_seconds": None,
        "curve": [],
    }
    return row


def copies_sent(world_size: int, pattern: str) -> float:
    """How many times a rank sends each value: "direct", "ring" or "gather"."""
    return world_size - 1 if pattern == "gather" else ring_bytes(1, world_size)


def busy_warning(rows: list[dict]) -> str | None:
    """A line where the machine had other work to do, so that the rows' times don't compare."""
    times = [row["compute_ms"] for row in rows if row["compute_ms"] is not None]
    if not times or max(times) <= _BUSY * min(times):
        return None
    return (
        f"the machine was busy: computing alone took {min(times):.0f} ms a step in one row and "
        f"{max(times):.0f} ms in another, so the rows' times don't compare; run it on an "
        "idle machine"
    )


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


def _mean_curve(points_of_ranks: list[list[dict]]) -> list[dict]:
    """Accuracy after so many steps, seconds of training and megabytes per rank."""
    curve = []
    for points in zip(*points_of_ranks, strict=True):
        curve.append(
            {
                "step": points[0]["step"],
                "seconds": statistics.fmean(point["seconds"] for point in points),
                "wire_mb": statistics.fmean(point["wire_mb"] for point in points),
                "accuracy": points[0]["accuracy"],
            }
        )
    return curve
