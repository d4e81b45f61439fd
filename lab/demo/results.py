"""Makes the rows of results.json from the ranks' reports, and warns of times that other work on the
machine has spoilt."""

import statistics

import deltawire

from lab.demo.definitions import ROW_KEYS
from lab.demo.labels import label_of, own_optimizer, seed_prefix
from lab.demo.methods import BASE, PLAIN, Method
from lab.demo.settings import Settings
from lab.ranks.links import ring_bytes

_BUSY = 1.2  # times the median compute_ms of all trainings
_USED = 0.25  # of the cores
_TIMES = ("ms_per_step", "compute_ms", "encode_ms", "exchange_ms", "decode_ms")
_NUMBERS = ("accuracy", *_TIMES, "wire_mb_per_rank")  # of a training, and their medians of a row


def canonical(spec: str | None) -> str | None:
    """The spec with its pattern and every parameter; None for plain DDP."""
    return None if spec is None else deltawire.canonical_spec(spec)


def make_repeat(seed: int, reports: list[dict]) -> dict:
    """One training of a row, from the reports of all ranks."""
    return {
        "seed": seed,
        "accuracy": reports[0]["accuracy"],
        **{key: statistics.median(report[key] for report in reports) for key in _TIMES},
        "wire_mb_per_rank": statistics.fmean(report["bytes_sent"] for report in reports) / 1e6,
        "bit_equal": all_equal(reports, "parameters") and all_equal(reports, "digests"),
        "failed": None,
        "curve": [  # accuracy by steps, with means over the ranks
            points[0]
            | {key: statistics.fmean(p[key] for p in points) for key in ("seconds", "wire_mb")}
            for points in zip(*(report["points"] for report in reports), strict=True)
        ],
    }


def failed_repeat(seed: int, error: str) -> dict:
    """A training that failed: only the reason."""
    numbers = dict.fromkeys((*_NUMBERS, "bit_equal"))
    return {"seed": seed, **numbers, "failed": error, "curve": []}


def make_row(method: Method, repeats: list[dict], settings: Settings) -> dict:
    """A row from its trainings, at least one; `add_ratios` fills in ratios to other rows."""
    row = dict.fromkeys(ROW_KEYS)
    own = settings.of_row(method)
    row.update(method=method.name, steps=settings.steps)
    row.update(momentum=own.momentum if own.optimizer == "sgd" else None, learning_rate=own.lr)
    row["detail"] = detail = {
        "label": label_of(method, settings),
        "own_optimizer": own_optimizer(method, settings),
        "spec": method.spec,
        "curve": [],
        "repeats": repeats,
    }
    failed = [repeat for repeat in repeats if repeat["failed"]]
    if failed:
        row["failed"] = "; ".join(seed_prefix(settings, it) + it["failed"] for it in failed)
        return row
    for key in _NUMBERS:
        row[key] = statistics.median(repeat[key] for repeat in repeats)
    for key in ("accuracy", "ms_per_step"):
        values = [repeat[key] for repeat in repeats]
        row[f"{key}_range"] = [min(values), max(values)]
    tensors_sent = (
        1e6 * row["wire_mb_per_rank"] / (4 * settings.workload.parameters * settings.steps)
    )
    ring = ring_bytes(1, settings.ranks)  # how many times a rank sends each value
    row["times_smaller"] = ring / tensors_sent
    copies_sent = settings.ranks - 1 if method.pattern == "gather" else ring
    row["bits_per_value"] = 32 * tensors_sent / copies_sent
    row["bit_equal"] = all(repeat["bit_equal"] for repeat in repeats)
    detail["spec"] = canonical(method.spec)
    detail["curve"] = _curve_of_repeats([repeat["curve"] for repeat in repeats])
    return row


def add_ratios(rows: list[dict]) -> None:
    """Fills in the ratios of bytes to fp32, of times to plain DDP or, without it, to fp32."""
    times = {row["method"]: row["ms_per_step"] for row in rows}
    base = next((times[name] for name in (PLAIN, BASE) if times.get(name) is not None), None)
    sent = {row["method"]: row["wire_mb_per_rank"] for row in rows}
    for row in rows:
        own = row["ms_per_step"]
        if own is None:
            continue
        if sent.get(BASE) is not None:
            row["times_smaller"] = sent[BASE] / row["wire_mb_per_rank"]
        if base is not None:
            row["times_faster"] = base / own


def take_times_out(rows: list[dict]) -> None:
    """Of rows of a busy machine; detail.repeats keeps what was measured."""
    for row in rows:
        row.update(dict.fromkeys((*_TIMES, "ms_per_step_range", "times_faster")))


def all_equal(reports: list[dict], key: str) -> bool:
    """Whether all ranks report the same."""
    return len({report[key] for report in reports}) == 1


def _curve_of_repeats(curves: list[list[dict]]) -> list[dict]:
    """Medians of a row's trainings, and accuracy_range."""
    merged = []
    for points in zip(*curves, strict=True):
        accuracies = [point["accuracy"] for point in points]
        medians = {key: statistics.median(p[key] for p in points) for key in points[0]}
        medians["step"] = points[0]["step"]
        merged.append({**medians, "accuracy_range": [min(accuracies), max(accuracies)]})
    return merged


def load_warnings(used: float, cores: int) -> list[str]:
    """A line if the machine had other work when the demo began, which slows all rows."""
    if used <= _USED * cores:
        return []
    return [
        f"the machine was busy: other programs used {used:.1f} of {cores} cores when the demo "
        "began, so it gives no times; run it on an idle machine"
    ]


def busy_warnings(rows: list[dict], settings: Settings) -> list[str]:
    """A line for each seed during which the machine had other work."""
    trained = [it for row in rows for it in row["detail"]["repeats"] if not it["failed"]]
    trained.sort(key=lambda repeat: repeat["compute_ms"])
    usual = trained[(len(trained) - 1) // 2]["compute_ms"] if trained else 0.0
    slowest = {repeat["seed"]: repeat for repeat in trained}  # of each seed the last
    return [
        f"{seed_prefix(settings, repeat)}the machine was busy: computing alone took "
        f"{repeat['compute_ms']:.0f} ms a step in one row and {usual:.0f} ms in most, so the demo "
        "gives no times; run it on an idle machine"
        for _, repeat in sorted(slowest.items())
        if repeat["compute_ms"] > _BUSY * usual
    ]
