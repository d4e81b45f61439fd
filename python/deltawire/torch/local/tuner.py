"""Measures the rounds of `LocalSteps(model, optimizer, "auto")`; the ranks decide together."""

import dataclasses
import json
import logging
import statistics
import time
from collections.abc import Sequence

import torch
import torch.distributed as dist

from deltawire import _core, arguments, foreign_json
from deltawire.errors import DeltawireError, make_error
from deltawire.policy import Policy
from deltawire.session.history import History
from deltawire.torch.core.arguments import is_auto
from deltawire.torch.core.device.choice import check_not_for_auto
from deltawire.torch.core.leader_decides import leader_decides
from deltawire.torch.local import adaptive
from deltawire.torch.local.adaptive import SHARES, Plan
from deltawire.torch.local.exchange import LocalExchange
from deltawire.torch.local.overlap import Overlap
from deltawire.torch.metrics.explanation import Explanation

logger = logging.getLogger("deltawire")

# Rules know a step's number, which only grows: each of these blocks of numbers has its share of
# elements, and a change goes to the next block that has the wanted one.
_BLOCK = 1 << 38
_BLOCKS = [0, *[1, 2, 3, 2, 1, 0] * 8]
# The core measures what waits in steps whose number is 15 modulo 64.
_STRIDE, _MEASURED = 64, 15


def _auto_spec() -> str:
    rules = [
        f"step<{(block + 1) * _BLOCK}: sbc:p={SHARES[level]:g}"
        for block, level in enumerate(_BLOCKS[:-1])
    ]
    return _core.Spec(", ".join([*rules, f"rest sbc:p={SHARES[_BLOCKS[-1]]:g}"])).text


AUTO_SPEC = _auto_spec()  # the canonical spec of all that "auto" may choose


def tuner_of(reducer: Policy, steps: object, group: dist.ProcessGroup) -> "Tuner | None":
    """What chooses for "auto" and "auto:wait=5%"; None for every other policy. Raises
    InvalidArgumentError.

    Args:
        reducer: as it was given.
        steps: local steps of the shortest round.
        group: the process group of the ranks.
    """
    if not is_auto(reducer):
        return None
    if callable(steps):
        raise make_error(
            "InvalidArgument",
            '"auto" chooses the length of rounds; give the shortest as steps=, a number',
        )
    arguments.check_positive("steps", steps)
    return Tuner(steps, _waited_of(reducer.strip()), group)


def _waited_of(spec: str) -> float:
    try:
        parameters = _core.NamedParameters(spec).parameters
        if not parameters:
            return adaptive.WAITED
        wait = parameters.pop("wait", "")
        share = float(wait.removesuffix("%")) / (100 if wait.endswith("%") else 1)
    except (DeltawireError, ValueError):
        parameters, share = {}, 0.0
    if parameters or not 0 < share < 1:
        raise make_error(
            "InvalidArgument",
            f"'{spec}': \"auto\" has the parameter wait alone, the share of the time that training "
            "may wait for exchanges, more than 0 and less than 1, or in percent, e.g. auto:wait=5%",
        )
    return share


class Tuner:
    """A rank's measurements, and the plan that all ranks have.

    Args:
        steps: local steps of the shortest round.
        waited: share of the time that training may wait.
        group: the process group of the ranks.

    Attributes:
        plan: the present one.

    Thread rule: the training loop; `metrics`: any thread.
    """

    def __init__(self, steps: int, waited: float, group: dist.ProcessGroup) -> None:
        self.plan = Plan(steps, waited)
        self._group = group
        self._near: torch.device | None = None  # the model's
        self._block = 0
        self._waited = 0.0
        self._round_began: float | None = None  # none before the first round has ended
        self._steps: list[float] = []  # seconds of a local step, by round
        self._exchanges: list[float] = []  # seconds waited, by round
        self._losses: list[torch.Tensor] = []

    def attach(
        self, exchange: LocalExchange, overlaps: Overlap, devices: Sequence[torch.device]
    ) -> dict[str, object]:
        """Numbers the exchanges, and returns what must be equal on all ranks. Raises
        InvalidArgumentError where it can't be measured how long training waits for them, or how
        much they hold back."""
        if overlaps:
            raise make_error(
                "InvalidArgument",
                '"auto" goes by how long training waits for exchanges, and with delay= and '
                "overlap= it hardly does; leave them out, or name a codec",
            )
        check_not_for_auto(exchange.choice.parts is not None)
        self._near = devices[0]
        exchange.number = self.number
        exchange.is_timed = True
        return {"wait": self.plan.waited}

    def number(self, exchanges: int) -> int:
        """The number of the step of an exchange."""
        measured = _MEASURED if len(self._steps) == self.plan.rounds - 1 else 0
        return self._block * _BLOCK + _STRIDE * exchanges + measured

    def observe(self, loss: float | torch.Tensor) -> None:
        """A loss of this rank's local steps: a number, or a tensor of one element."""
        try:
            if not isinstance(loss, torch.Tensor):
                loss = torch.tensor(loss, dtype=torch.float64, device="cpu")
            value = loss.detach().double()
        except (RuntimeError, TypeError, ValueError) as cause:
            raise make_error(
                "InvalidArgument", f"a loss is a number or a tensor, not {loss!r:.40}: {cause}"
            ) from cause
        if value.numel() != 1:
            raise make_error(
                "InvalidArgument",
                f"a loss is one number, not a tensor of {value.numel()} elements; give its mean",
            )
        self._losses.append(value.reshape(()))

    def round_over(self, steps: int, total_waited: float, history: History) -> None:
        """A round has ended; after some of them the ranks decide. Raises DeltawireError, on every
        rank.

        Args:
            steps: local steps that this rank took in it.
            total_waited: seconds that it has waited for exchanges in all.
            history: of its exchanges.
        """
        now = time.monotonic()
        waited, self._waited = total_waited - self._waited, total_waited
        if self._round_began is not None:
            computed = max(0.0, now - self._round_began - waited)
            self._steps.append(computed / steps if steps else 0.0)
            self._exchanges.append(waited)
        if len(self._steps) == self.plan.rounds:
            self._decide(history)
            now = time.monotonic()
        if self._round_began is None:
            self._losses.clear()  # the first round is no part of a window
        self._round_began = now

    def _decide(self, history: History) -> None:
        may = self._next_block(None) is not None

        def answer(said: list[dict]) -> dict:
            return adaptive.decide(self.plan, adaptive.window_of(said), may).as_dict()

        said = leader_decides(self._report(history), answer, self._group, self._near)
        decided = adaptive.plan_of(said)
        if decided.choice.level != self.plan.choice.level:
            self._block = self._next_block(decided.choice.level)
        if decided.changes != self.plan.changes and history.rank == 0:
            logger.info("auto: %s", decided.words())
        self.plan = decided
        self._start_window()

    def _start_window(self) -> None:
        self._steps.clear()
        self._exchanges.clear()
        self._losses.clear()

    def _next_block(self, level: int | None) -> int | None:
        """The next block with a share; without one the last in which every share follows."""
        if level is None:
            ahead = _BLOCKS[self._block + 1 :]
            return self._block if set(ahead) == set(range(len(SHARES))) else None
        return _BLOCKS.index(level, self._block + 1)

    def _report(self, history: History) -> dict:
        given = [each.cpu() for each in self._losses]  # their device has ended the round
        losses = torch.stack(given) if given else torch.zeros(1, dtype=torch.float64, device="cpu")
        waiting = history.metrics()["waiting_steps"]
        window = adaptive.Window(
            step=statistics.median(self._steps),
            exchange=statistics.median(self._exchanges),
            waiting=waiting,
            losses=len(self._losses),
            loss=float(losses.mean()),
            variance=float(losses.var(correction=0)),
        )
        return dataclasses.asdict(window)

    def announcement(self) -> str:
        """What will happen, in a line."""
        plan, shares = self.plan, ", ".join(f"{100 * share:g}" for share in SHARES)
        return (
            f"begins with {plan.choice.words(plan.steps)}; every {adaptive.WINDOW} rounds, and one "
            f"round after a change, all ranks choose one of p = {shares} % and rounds of "
            f"{plan.steps} to {adaptive.MOST_TIMES * plan.steps} steps, so that training waits at "
            f"most {100 * plan.waited:g} % of the time; back where the loss rises, or without "
            f"losses where more than {adaptive.MOST_WAITING:g} rounds' messages wait"
        )

    def explained(self, tensors: Explanation, exchanges: int) -> Explanation:
        """The table of the present choice.

        Args:
            tensors: with the rules of all choices.
            exchanges: the next one's number.
        """
        rows = [dataclasses.replace(r, changes_at=None, next_codec=None) for r in tensors.rows]
        note = f"auto: {self.plan.words()}"
        return dataclasses.replace(tensors, rows=tuple(rows), step=exchanges, note=note)

    def metrics(self) -> dict:
        """See `LocalSteps.metrics`."""
        plan = self.plan
        return {
            "auto_share": SHARES[plan.choice.level],
            "auto_steps": plan.round_steps,
            "auto_waited": plan.last.waited(plan.round_steps) if plan.last else None,
            "auto_changes": plan.changes,
        }

    def state(self) -> str:
        """For a checkpoint; equal on all ranks."""
        return json.dumps({"plan": self.plan.as_dict(), "block": self._block})

    def check_state(self, state: object) -> None:
        """Raises InvalidArgumentError unless it is a `state()`."""
        self._read(state)

    def load(self, state: str) -> None:
        """Restores what `state()` returned; measuring begins anew."""
        self.plan, self._block = self._read(state)
        self._round_began = None
        self._start_window()

    @staticmethod
    def _read(state: object) -> tuple[Plan, int]:
        try:
            said = foreign_json.parse(state)
            plan, block = adaptive.plan_of(said["plan"]), said["block"]
            if type(block) is not int or _BLOCKS[block] != plan.choice.level or block < 0:
                raise ValueError(f"block {block} has another share")
        except foreign_json.UNFIT as cause:
            raise make_error(
                "InvalidArgument", f'the state\'s choice of "auto" is damaged: {cause}'
            ) from cause
        return plan, block
