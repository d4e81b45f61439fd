"""What "auto" of `LocalSteps` decides: how sparse a round's message is, and how long a round.

Sattler et al., "Sparse Binary Compression" (2019), figure 3: sparsity of what is sent (p) and in
time (1 / n, rounds of n steps) can take each other's place. Pure functions, without clock or
socket: rank 0 calls them and tells the others the result.
"""

import dataclasses
import math
from collections.abc import Sequence

SHARES = (0.1, 0.03, 0.01, 0.003)  # p of sbc, from the mildest on
MOST_TIMES = 16  # shortest rounds in the longest one
WAITED = 0.1  # share of the time that training may wait for exchanges, where nothing else is given
# Rounds' messages that may wait, without losses to judge by. With changes drawn at random, with or
# without a drift, sbc levels off at 2 to 7 within 150 rounds, for each of SHARES.
MOST_WAITING = 16.0
LEAST_PATIENCE, MOST_PATIENCE = 4, 64  # windows until a refused choice is tried again
WINDOW = 4  # rounds that a decision is made from, where the latest one changed nothing
_SURE = 2.0  # standard errors


@dataclasses.dataclass(frozen=True)
class Choice:
    """How the ranks exchange.

    Attributes:
        level: index in SHARES.
        times: shortest rounds in a round, a power of two.
    """

    level: int = 0
    times: int = 1

    def thinner(self) -> "list[Choice]":
        """Those that send less by one stage: fewer elements, longer rounds."""
        made = [Choice(self.level + 1, self.times)] if self.level + 1 < len(SHARES) else []
        return made + ([Choice(self.level, 2 * self.times)] if self.times < MOST_TIMES else [])

    def words(self, steps: int) -> str:
        """For messages; `steps` are those of the shortest round."""
        return f"sbc:p={100 * SHARES[self.level]:g}% in rounds of {self.times * steps} steps"


@dataclasses.dataclass(frozen=True)
class Window:
    """What was seen in some rounds.

    Attributes:
        step: seconds of a local step; of a rank that took none (its data has ended): 0.
        exchange: seconds that training waited in a round.
        waiting: norm of what waits by norm of what was sent: rounds' messages (`waiting_steps` of
            `metrics`); None: not known.
        losses: how many losses were given.
        loss, variance: their mean and variance.
    """

    step: float
    exchange: float
    waiting: float | None = None
    losses: int = 0
    loss: float = 0.0
    variance: float = 0.0

    def waited(self, steps: int) -> float:
        """The share of the time that training waits with rounds of so many steps."""
        whole = self.exchange + steps * self.step
        return self.exchange / whole if whole else 0.0

    def rose_from(self, before: "Window") -> bool:
        """Whether the loss is higher than `before`, beyond the noise of both means."""
        if not self.losses or not before.losses:
            return False
        if not math.isfinite(self.loss):
            return True
        error = math.sqrt(self.variance / self.losses + before.variance / before.losses)
        return self.loss - before.loss > _SURE * error


def window_of(said: Sequence[dict]) -> Window:
    """Combines the ranks' reports, dicts with the fields of `Window`. The step is the slowest
    rank's, and the exchange that of the rank which waited least: the others also waited for it.

    Raises ValueError if only some of the ranks that took steps gave losses.
    """
    silent = [rank for rank, each in enumerate(said) if each["step"] and not each["losses"]]
    if silent and any(each["losses"] for each in said):
        raise ValueError(f"rank {silent[0]} gave no loss, and others did; observe it on all ranks")
    waiting = [each["waiting"] for each in said if each["waiting"] is not None]
    losses = sum(each["losses"] for each in said)
    mean = sum(each["losses"] * each["loss"] for each in said) / losses if losses else 0.0
    spread = sum(each["losses"] * each["variance"] for each in said) / losses if losses else 0.0
    return Window(
        step=max(each["step"] for each in said),
        exchange=min(each["exchange"] for each in said),
        waiting=max(waiting) if waiting else None,
        losses=losses,
        loss=mean,
        variance=spread,
    )


@dataclasses.dataclass(frozen=True)
class Plan:
    """What the ranks do, and what led there.

    Attributes:
        steps: of the shortest round.
        waited: share of the time that training may wait.
        choice: how they exchange.
        path: the milder choices before it, back to which it can go.
        refused: ((choice, windows until it may be tried again), ...).
        patience: windows until what proves wrong next may be tried again; then they double.
        relaxed: the latest change was to a milder choice.
        rest: windows until a milder choice may be tried.
        fixed: seconds of an exchange that fewer elements don't shorten: latency, and small tensors,
            which are sent whole. 0 until p has changed.
        last: the latest window.
        measured: the choice of the latest window.
        reason: one line.
        changes: how often the choice has changed.
    """

    steps: int
    waited: float = WAITED
    choice: Choice = Choice()
    path: tuple[Choice, ...] = ()
    refused: tuple[tuple[Choice, int], ...] = ()
    patience: int = LEAST_PATIENCE
    relaxed: bool = False
    rest: int = 0
    fixed: float = 0.0
    last: Window | None = None
    measured: Choice = Choice()
    reason: str = "begins with the most elements and the shortest rounds"
    changes: int = 0

    @property
    def round_steps(self) -> int:
        """Local steps a round."""
        return self.choice.times * self.steps

    @property
    def rounds(self) -> int:
        """That the next decision is made from: one after a change, so that a poor choice is soon
        left."""
        return WINDOW if self.last is not None and self.measured == self.choice else 1

    def words(self) -> str:
        """The choice, and why."""
        return f"{self.choice.words(self.steps)}: {self.reason}"

    def as_dict(self) -> dict:
        """For JSON; `plan_of` reads it."""
        return dataclasses.asdict(self)


def plan_of(said: dict) -> Plan:
    """The inverse of `Plan.as_dict`, also after JSON. Raises ValueError for anything else."""
    try:
        made = dict(said)
        made["choice"] = _choice_of(said["choice"])
        made["measured"] = _choice_of(said["measured"])
        made["path"] = tuple(map(_choice_of, said["path"]))
        made["refused"] = tuple((_choice_of(choice), int(left)) for choice, left in said["refused"])
        made["last"] = None if said["last"] is None else Window(**said["last"])
        return Plan(**made)
    except (KeyError, TypeError, AttributeError) as cause:
        raise ValueError(f"it is no plan of rounds: {cause}") from cause


def _choice_of(said: dict) -> Choice:
    made = Choice(**said)
    if made.level not in range(len(SHARES)) or made.times not in (1, 2, 4, 8, MOST_TIMES):
        raise ValueError(f"{said} is no choice")
    return made


def decide(plan: Plan, seen: Window, may_change_share: bool = True) -> Plan:
    """The plan after a window: back if the loss rose or too much waits, thinner if training waits
    too long, milder if the link has time for it.

    Args:
        plan: that the window was measured with.
        seen: the window.
        may_change_share: whether p may change.
    """
    left = tuple((choice, windows - 1) for choice, windows in plan.refused if windows > 1)
    fixed = _fixed_after(plan, seen)
    plan = dataclasses.replace(plan, refused=left, rest=max(0, plan.rest - 1), fixed=fixed)
    if (trouble := _trouble(plan, seen)) is not None:
        return _back(plan, seen, trouble, may_change_share)
    waited = seen.waited(plan.round_steps)
    share = f"training waited {100 * waited:.3g} % of the time"
    if waited > plan.waited:
        refused = {choice for choice, _ in plan.refused}
        offered = [
            each
            for each in plan.choice.thinner()
            if each not in refused and (may_change_share or each.level == plan.choice.level)
        ]
        if not offered:
            return _kept(plan, seen, f"{share}, and nothing thinner is left to try")
        best = min(offered, key=lambda each: _predicted(plan, seen, each))
        if plan.relaxed:
            plan = dataclasses.replace(plan, rest=plan.patience, patience=_longer(plan.patience))
        return _moved(plan, seen, best, (*plan.path, plan.choice), share)
    if plan.path and not plan.rest and _predicted(plan, seen, plan.path[-1]) <= plan.waited / 2:
        milder = plan.path[-1]
        if may_change_share or milder.level == plan.choice.level:
            why = f"{share}, the link has time for more"
            moved = _moved(plan, seen, milder, plan.path[:-1], why)
            return dataclasses.replace(moved, relaxed=True)
    return _kept(dataclasses.replace(plan, relaxed=False), seen, f"{share}, as it should")


def _fixed_after(plan: Plan, seen: Window) -> float:
    """`Plan.fixed` after a window: from the line through the exchanges with two values of p."""
    before, p = SHARES[plan.measured.level], SHARES[plan.choice.level]
    if plan.last is None or p == before:
        return plan.fixed
    slope = (plan.last.exchange - seen.exchange) / (before - p)
    return min(max(0.0, seen.exchange - slope * p), seen.exchange)


def _trouble(plan: Plan, seen: Window) -> str | None:
    """Why the choice is too thin, or None. Losses decide if they were given, else what waits."""
    if seen.losses:
        if plan.last is not None and seen.rose_from(plan.last):
            return f"the loss rose from {plan.last.loss:.4g} to {seen.loss:.4g}"
        return None
    if seen.waiting is not None and seen.waiting > MOST_WAITING:
        return f"{seen.waiting:.3g} rounds' messages wait, more than {MOST_WAITING:g}"
    return None


def _back(plan: Plan, seen: Window, trouble: str, may_change_share: bool) -> Plan:
    kept = may_change_share or not plan.path or plan.path[-1].level == plan.choice.level
    if not plan.path or not kept:
        return _kept(plan, seen, f"{trouble}, and nothing milder is left")
    refused = (*plan.refused, (plan.choice, plan.patience))
    patience = _longer(plan.patience)
    back = _moved(plan, seen, plan.path[-1], plan.path[:-1], trouble)
    return dataclasses.replace(back, refused=refused, patience=patience)


def _longer(patience: int) -> int:
    return min(2 * patience, MOST_PATIENCE)


def _kept(plan: Plan, seen: Window, why: str) -> Plan:
    return dataclasses.replace(plan, last=seen, measured=plan.choice, reason=why)


def _moved(plan: Plan, seen: Window, to: Choice, path: tuple[Choice, ...], why: str) -> Plan:
    return dataclasses.replace(
        plan,
        choice=to,
        path=path,
        relaxed=False,
        last=seen,
        measured=plan.choice,
        reason=why,
        changes=plan.changes + 1,
    )


def _predicted(plan: Plan, seen: Window, choice: Choice) -> float:
    """The share of the time that training would wait: what isn't fixed of an exchange takes as long
    as its elements are many."""
    times = SHARES[choice.level] / SHARES[plan.choice.level]
    fixed = min(plan.fixed, seen.exchange)
    exchange = fixed + times * (seen.exchange - fixed)
    return dataclasses.replace(seen, exchange=exchange).waited(choice.times * plan.steps)
