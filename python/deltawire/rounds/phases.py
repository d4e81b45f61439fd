"""Temporal against gradient sparsity, by the phase of training (SBC, section III)."""

import dataclasses

from deltawire.errors import make_error


@dataclasses.dataclass(frozen=True)
class Phase:
    """A stretch of training.

    Attributes:
        rounds: how many; None for the last phase: all further ones.
        steps: local steps per round: temporal sparsity is 1 / steps.
        spec: codec of the updates, without a pattern: gradient sparsity.
    """

    rounds: int | None
    steps: int
    spec: str


class Phases:
    """A schedule of rounds: the local steps, and the codec as rules for a client, or for ranks::

        phases = Phases(Phase(30, 100, "sbc:p=10%"), Phase(None, 1, "sbc:p=0.1%"))
        client = rounds.Client(phases.spec)                  # takes phases.steps(round) steps
        deltawire.torch.LocalSteps(model, optimizer, phases.spec, steps=phases.steps)

    According to the paper, at an equal product of both sparsities, long rounds do best while the
    learning rate is high, and gradient sparsity after it has been lowered.

    Args:
        phases: in order; the last one's rounds are None, no other's.

    Attributes:
        spec: rules in which the step is the round. Residuals pass from one codec to the next.
    """

    def __init__(self, *phases: Phase) -> None:
        if not phases or [p.rounds is None for p in phases] != [False] * (len(phases) - 1) + [True]:
            raise make_error(
                "InvalidArgument", "give one phase or more, of which the last alone has rounds=None"
            )
        for phase in phases:
            for name, value in (
                ("rounds", 1 if phase.rounds is None else phase.rounds),
                ("steps", phase.steps),
            ):
                if not isinstance(value, int) or value < 1:
                    raise make_error("InvalidArgument", f"{phase}: {name} must be 1 or more")
        self._ends, end = [], 0
        for phase in phases[:-1]:
            end += phase.rounds
            self._ends.append((end, phase))
        self._last = phases[-1]
        self.spec = self._last.spec
        if self._ends:
            rules = [f"step<{end}: {phase.spec}" for end, phase in self._ends]
            self.spec = ", ".join([*rules, f"rest {self._last.spec}"])

    def steps(self, number: int) -> int:
        """Local steps of round `number`, from 0."""
        for end, phase in self._ends:
            if number < end:
                return phase.steps
        return self._last.steps
