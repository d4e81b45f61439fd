"""What `auto` decides from the measurements of all ranks. Pure functions, without clock or socket:
rank 0 calls them and tells the others the result.

A rank's measurement is a dict that JSON can carry: `ready` (for each step the seconds at which each
bucket was ready), `ends` (for each step), and for a plan `buckets` ([[(name, elements)]]),
`value_bytes` (for each bucket, bytes a value in the native all-reduce), `figures` (see
`codec_figures.Trials`), `uncoded` (the same for fp32, or None), `refused`, `link` ((bytes a
second, latency)), `copies` (seconds a byte from the model's device to the CPU, and back; zeros on
the CPU), `shares_memory` (whether all ranks read each other's values where they lie), `host`,
`processors` and `threads`.
"""

import dataclasses
import statistics
from collections import Counter
from collections.abc import Callable

from deltawire import _core, foreign_json
from deltawire.errors import invalid
from deltawire.planner import CodecFigures, Link, Machine, Plan, Workload, make_plan
from deltawire.torch.auto import mix as auto_mix
from deltawire.torch.auto.native import HALVED

PHASES = ("measuring", "trying", "compressing", "native", "leaving")
LEAST_GAIN = 0.03  # share of the native step that must be saved: docs/guides/planner.md
DEPARTS = 2.0  # times longer or shorter: the exchange has changed
_NOTICED = 0.1  # share of a step: smaller changes of the exchange don't matter
_SURE = 2.0  # standard errors
_BEYOND = 1.25  # by which the native steps may correct the measured link
_BISECTIONS = 20
_FASTEST = 1e12  # bytes a second: on every link that the planner looks at
_ALIKE = 0.05  # share of a step that predictions can't tell apart: docs/guides/planner.md
_TOLD_BY = 0.01  # share of a step: below it measurements can't tell two apart
_IN_MEMORY = "direct(fp32)"
_IN_MEMORY_REASON = f"{_IN_MEMORY}: the ranks share memory, so no value is sent; it is tried"
_TIERS = ("lossless", "near-lossless", "lossy")


@dataclasses.dataclass(frozen=True)
class Decision:
    """The ranks' exchange from now on. All times are milliseconds a step.

    Attributes:
        spec: the chosen exchange, canonical, or HALVED; None: the native all-reduce.
        reason: one line.
        native_ms: measured native steps: the median over steps of the slowest rank.
        exchange_ms: the part of a step after the computation, as last measured.
        plain_ms, predicted_ms: predictions for a native step, and for one with the choice.
        link: (bytes a second, latency in seconds); the rate is what `link_rate` returns.
        rows: of the plan: codec, tier, bits_per_value, predicted_ms, times_faster, gains_below
            (bytes a second, None: never), allowed.
        refused: candidates that could not be measured, and why.
        native_bits: mean bits a value in the native all-reduce.
        by_bucket: the codec of each bucket, if they differ.
    """

    spec: str | None
    reason: str
    native_ms: float
    exchange_ms: float
    plain_ms: float
    predicted_ms: float
    link: tuple[float, float] = (0.0, 0.0)
    rows: tuple[dict, ...] = ()
    refused: tuple[str, ...] = ()
    native_bits: float = 32.0
    by_bucket: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The choice in words: a spec, or which codec is used in which buckets."""
        if self.spec is not None and self.by_bucket:
            return auto_mix.label(_core.Spec(self.spec).pattern, self.by_bucket)
        return self.spec or "native"

    def as_dict(self) -> dict:
        """For JSON; `decision_of` reads it."""
        return dataclasses.asdict(self)


def decision_of(said: dict) -> Decision:
    """The inverse of `as_dict`. Raises ValueError for anything else."""
    try:
        made = Decision(**said)
    except TypeError as cause:
        raise ValueError(f"it is no decision: {cause}") from cause
    times = [v for k, v in said.items() if k.endswith("_ms")]
    if not isinstance(made.spec, str | None) or not all(isinstance(t, int | float) for t in times):
        raise ValueError("its spec is no text, or its times are no numbers")
    listed = ("link", "rows", "refused", "by_bucket")
    return dataclasses.replace(made, **{name: tuple(getattr(made, name)) for name in listed})


def choice_of(state: dict) -> tuple[str, Decision | None]:
    """(phase, decision) of a hook's state. Raises InvalidArgumentError if it has none."""
    text = state.get("auto") if isinstance(state, dict) else None
    if not isinstance(text, str):
        raise invalid(
            'the state has no choice of "auto": it was saved by register with a codec; register '
            "the model with that one, or start without the state"
        )
    try:
        said = foreign_json.parse(text)
        phase, decision = said["phase"], said["decision"]
        if phase not in PHASES:
            raise ValueError(f"phase {phase!r} is unknown")
        return phase, None if decision is None else decision_of(decision)
    except foreign_json.UNFIT as cause:
        raise invalid(f"the state's choice is damaged: {cause}") from cause


@dataclasses.dataclass(frozen=True)
class StepsOfAll:
    """The steps of all ranks: the slowest rank of each step, which the others wait for, then the
    median over steps.

    Attributes:
        ready: seconds until each bucket is ready.
        end: seconds until the step ends.
        spread: median absolute deviation of the ends.
        count: number of steps.
    """

    ready: tuple[float, ...]
    end: float
    spread: float
    count: int

    @property
    def exchange(self) -> float:
        """Seconds of a step after the computation."""
        return max(0.0, self.end - self.ready[-1])

    @property
    def error(self) -> float:
        """The standard error of `end`. That of a median of n values is about 1.25 s / sqrt(n),
        where s is 1.48 median absolute deviations."""
        return 1.86 * self.spread / self.count**0.5


def steps_of(said: list[dict]) -> StepsOfAll | None:
    """Combines the ranks' steps. None if a rank has no complete step, or if DDP has rebuilt its
    buckets meanwhile."""
    count = min(len(each["ends"]) for each in said)
    if not count:
        return None
    ready = [each["ready"][-count:] for each in said]
    if len({len(step) for steps in ready for step in steps}) != 1:
        return None
    ends = [max(each) for each in zip(*(rank["ends"][-count:] for rank in said), strict=True)]
    moments = []
    for bucket in range(len(ready[0][0])):
        slowest = [max(rank[step][bucket] for rank in ready) for step in range(count)]
        moments.append(max([statistics.median(slowest), *moments[-1:]]))
    middle = statistics.median(ends)
    spread = statistics.median(abs(end - middle) for end in ends)
    return StepsOfAll(tuple(moments), middle, spread, count)


@dataclasses.dataclass(frozen=True)
class Planned:
    """The planner's answers.

    Attributes:
        plan: one codec for all buckets.
        link: the link that explains the measured native steps.
        by_bucket: a choice for each bucket that is predicted to beat the plan's best, or None.
        refused: why such a choice can't be made, if so.
        halved_ms: a step whose native all-reduce has bfloat16; None where the tier forbids that, or
            where gradients have 16 bits already.
    """

    plan: Plan
    link: Link
    by_bucket: auto_mix.BucketChoice | None
    refused: str | None
    halved_ms: float | None


def plan_of(said: list[dict], steps: StepsOfAll, tier: str) -> Planned:
    """Asks the planner with the ranks' measurements: the link that explains the native steps,
    codecs as slow as on the slowest rank, and cores a rank as on the most crowded machine."""
    buckets = list(zip(said[0]["buckets"], steps.ready, strict=True))

    def workload_of(value_bytes: list[int]) -> Workload:
        tensors = [([(name, count) for name, count in each], ready) for each, ready in buckets]
        return Workload(tensors, steps.ready[-1], value_bytes)

    value_bytes = said[0]["value_bytes"]
    workload = workload_of(value_bytes)
    threads = min(each["threads"] for each in said)
    copies = _slowest(said, "copies")
    machine = Machine(cores=cores_of(said), coding_threads=threads, copies=copies)
    latency = max(s["link"][1] for s in said)

    def plan(rate: float, figures: list[CodecFigures], step: Workload = workload) -> Plan:
        link = Link(rate, latency_seconds=latency)
        return make_plan(step, len(said), link, figures, machine, tier, LEAST_GAIN)

    rates = [s["link"][0] for s in said]
    rate = link_rate(rates, steps.end, lambda rate: plan(rate, []).plain.step_seconds)
    link, figures = Link(rate, latency_seconds=latency), _figures(said)
    by_bucket = refused = None
    uncoded = [each["uncoded"] for each in said]
    if figures and all(uncoded):
        site = workload, len(said), link, machine
        names = said[0]["buckets"]
        worst = _slowest_of_all(uncoded)
        by_bucket, refused = auto_mix.choose(site, names, figures, worst, tier)
    halved_ms = None
    if tier != _TIERS[0] and set(value_bytes) == {4}:
        halved = plan(rate, [], workload_of([2] * len(value_bytes)))
        halved_ms = 1e3 * halved.plain.step_seconds
    return Planned(plan(rate, figures), link, by_bucket, refused, halved_ms)


def link_rate(measured: list[float], native: float, predicted: Callable[[float], float]) -> float:
    """The rate, in bytes a second, at which the predicted native step takes as long as the measured
    one.

    Probes alone don't suffice: they end on all ranks at once, so that a rank that began early
    measures a lower rate, and they don't see the load of a training step. Native steps do. The
    result stays within the range of the probes, widened by a quarter: whatever else made a step
    slow is not the link's fault.

    Args:
        measured: the rate of each rank's probe.
        native: seconds of a native step.
        predicted: seconds of a native step at a rate; never longer at a higher one.
    """
    low, high = min(measured) / _BEYOND, max(measured) * _BEYOND
    if predicted(low) - predicted(high) < _TOLD_BY * native:
        return min(measured)  # the step doesn't depend on the rate: all hidden, or all latency
    for _ in range(_BISECTIONS):
        middle = (low * high) ** 0.5
        if predicted(middle) > native:
            low = middle
        else:
            high = middle
    return (low * high) ** 0.5


def cores_of(said: list[dict]) -> float:
    """Cores a rank, on the machine with the fewest for each rank."""
    ranks = Counter(each["host"] for each in said)
    return min(each["processors"] / ranks[each["host"]] for each in said)


def _figures(said: list[dict]) -> list[CodecFigures]:
    by_rank = [{figures["spec"]: figures for figures in each["figures"]} for each in said]
    made = []
    for spec in by_rank[0]:
        if all(spec in each for each in by_rank):  # else it can't encode some rank's values
            made.append(CodecFigures(**_slowest_of_all([each[spec] for each in by_rank])))
    return made


def _slowest_of_all(figures: list[dict]) -> dict:
    """Combines all ranks' figures of one codec."""
    return figures[0] | {
        "tier": max((each["tier"] for each in figures), key=_TIERS.index),
        "bits_per_value": statistics.mean(each["bits_per_value"] for each in figures),
        "encode": _slowest(figures, "encode"),
        "decode": _slowest(figures, "decode"),
    }


def _slowest(figures: list[dict], key: str) -> tuple[float, float]:
    return tuple(max(each[key][i] for each in figures) for i in range(2))


def choose(said: list[dict], tier: str) -> Decision | None:
    """The plan's choice, or native if the plan or the measured native step speaks against it. None
    if there are too few steps to decide."""
    steps = steps_of(said)
    if steps is None or any(not each["figures"] and not each["refused"] for each in said):
        return None
    if any(len(each["buckets"]) != len(steps.ready) for each in said):
        return None
    planned = plan_of(said, steps, tier)
    plan, link = planned.plan, planned.link
    native = 1e3 * steps.end
    rows = [*map(_row, plan.rows), *_halved_row(planned)]
    refused = sorted({line for each in said for line in each["refused"]})
    decision = Decision(
        spec=None,
        reason=plan.reason,
        native_ms=native,
        exchange_ms=1e3 * steps.exchange,
        plain_ms=1e3 * plan.plain.step_seconds,
        predicted_ms=1e3 * plan.plain.step_seconds,
        link=(link.up_bytes_per_second, link.latency_seconds),
        rows=tuple(rows),
        refused=(*refused, *([planned.refused] if planned.refused else [])),
        native_bits=_native_bits(said[0]),
    )
    if all(map(_sends_no_values, said)):
        return dataclasses.replace(decision, spec=_IN_MEMORY, reason=_IN_MEMORY_REASON)
    chosen = _or_halved(_chosen(decision, planned), planned.halved_ms)
    if chosen.spec is None or chosen.predicted_ms <= (1 - LEAST_GAIN) * native:
        return chosen
    reason = (
        f"do not compress: the native step was measured as {native:.2f} ms, and the best, "
        f"{chosen.label}, is predicted to take {chosen.predicted_ms:.2f} ms"
    )
    return dataclasses.replace(decision, reason=reason)


def _sends_no_values(measured: dict) -> bool:
    """Whether this rank's float32 gradients would stay in memory that the ranks share, which takes
    less time than any codec: no plan foresees it, so it is tried."""
    on_cpu = not any(measured["copies"])
    return measured["shares_memory"] and on_cpu and set(measured["value_bytes"]) == {4}


def _chosen(native: Decision, planned: Planned) -> Decision:
    """The plan's choice: by bucket, for all buckets, or native if the best gains too little."""
    plan, mix = planned.plan, planned.by_bucket
    if mix is not None and mix.predicted_ms <= (1 - LEAST_GAIN) * native.plain_ms:
        made = dataclasses.replace(
            native, spec=mix.spec, predicted_ms=mix.predicted_ms, by_bucket=mix.of_bucket
        )
        allowed = [row for row in native.rows if row["allowed"] and row["codec"] != HALVED]
        best = min(allowed, key=lambda row: row["predicted_ms"])
        reason = (
            f"{made.label}: {mix.predicted_ms:.2f} ms a step instead of {native.plain_ms:.2f} ms, "
            f"{native.plain_ms / mix.predicted_ms:.3g} times as fast; with {best['codec']} in all "
            f"buckets {best['predicted_ms']:.2f} ms"
        )
        return dataclasses.replace(made, reason=reason)
    if plan.chosen is None:
        return native
    row = native.rows[plan.chosen]
    return dataclasses.replace(native, spec=row["codec"], predicted_ms=row["predicted_ms"])


def _or_halved(chosen: Decision, halved_ms: float | None) -> Decision:
    """The native all-reduce of halves instead, where that pays and the choice is not faster by more
    than predictions can tell: it is what torch's hooks do, on connections that are the fastest for
    it."""
    if halved_ms is None or halved_ms > (1 - LEAST_GAIN) * chosen.plain_ms:
        return chosen
    if chosen.spec is not None and chosen.predicted_ms < (1 - _ALIKE) * halved_ms:
        return chosen
    reason = (
        f"{HALVED}: {halved_ms:.2f} ms a step instead of {chosen.plain_ms:.2f} ms, "
        f"{chosen.plain_ms / halved_ms:.3g} times as fast"
    )
    return dataclasses.replace(
        chosen, spec=HALVED, predicted_ms=halved_ms, reason=reason, by_bucket=()
    )


def _halved_row(planned: Planned) -> list[dict]:
    if planned.halved_ms is None:
        return []
    return [
        {
            **{"codec": HALVED, "tier": _TIERS[1], "bits_per_value": 16.0, "allowed": True},
            "predicted_ms": planned.halved_ms,
            "times_faster": 1e3 * planned.plan.plain.step_seconds / planned.halved_ms,
            "gains_below": _FASTEST,
        }
    ]


def _native_bits(measured: dict) -> float:
    counts = [sum(count for _, count in tensors) for tensors in measured["buckets"]]
    sent = sum(c * b for c, b in zip(counts, measured["value_bytes"], strict=True))
    return 8 * sent / sum(counts)


def _row(row) -> dict:
    return {
        "codec": row.figures.spec,
        "tier": row.figures.tier,
        "bits_per_value": row.figures.bits_per_value,
        "predicted_ms": 1e3 * row.prediction.step_seconds,
        "times_faster": row.times_faster,
        "gains_below": row.gains_below,
        "allowed": row.allowed,
    }


def judge(decision: Decision, said: list[dict]) -> Decision | None:
    """Compares steps with the choice and native ones, which alternated (`native` has the latter's
    measurement): returns the choice with measured times, or native unless the choice is faster
    beyond noise. None if there are too few steps to decide."""
    coded, plain = steps_of(said), steps_of([each["native"] for each in said])
    if coded is None or plain is None:
        return None
    took, native = 1e3 * coded.end, 1e3 * plain.end
    noise = _SURE * 1e3 * (coded.error**2 + plain.error**2) ** 0.5
    if took + noise < native:
        return dataclasses.replace(decision, native_ms=native, exchange_ms=1e3 * coded.exchange)
    reason = (
        f"back to the native all-reduce: with {decision.label} a step took {took:.2f} ms instead "
        f"of {native:.2f} ms: no gain beyond the noise of {noise:.2f} ms; "
        f"{decision.predicted_ms:.2f} ms were predicted"
    )
    return dataclasses.replace(
        decision,
        spec=None,
        by_bucket=(),
        reason=reason,
        native_ms=native,
        predicted_ms=decision.plain_ms,
        exchange_ms=1e3 * plain.exchange,
    )


def departs(decision: Decision, said: list[dict]) -> str | None:
    """Why to measure again, in one line; None while exchanges take as long as they did."""
    steps = steps_of(said)
    if steps is None:
        return None
    now, before = 1e3 * steps.exchange, decision.exchange_ms
    small = abs(now - before) <= _NOTICED * max(1e3 * steps.end, decision.native_ms)
    if small or max(now, before) <= DEPARTS * min(now, before):
        return None
    return f"exchanges took {before:.2f} ms of a step, and take {now:.2f} ms now: measuring again"
