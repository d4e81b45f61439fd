"""What a seed decides before a job of an elastic session is simulated."""

import dataclasses
import random

_KINDS = (*3 * ("kill",), "power off", *2 * ("freeze",), "split", "leave", "raise", *2 * ("join",))


@dataclasses.dataclass
class Fault:
    """What happens to a process, `at` seconds after the job began: "kill", "power off", "freeze",
    "split" (the processes in `group` don't hear the others), "leave", "raise" or "join"."""

    kind: str
    at: float
    process: int
    lasts: float
    group: frozenset[int] = frozenset()


@dataclasses.dataclass
class Plan:
    """What a seed decides."""

    seed: int
    world: int
    steps: int
    pause: float
    timeout: float
    meeting: float
    delay: float
    faults: list[Fault]


def draw_plan(seed: int) -> Plan:
    """The plan of a seed."""
    draw = random.Random(seed)
    world = draw.randint(2, 6)
    plan = Plan(
        seed,
        world,
        steps=draw.randint(8, 30),
        pause=draw.choice((0.1, 0.5)),
        timeout=draw.uniform(2, 6),
        meeting=draw.uniform(8, 30),
        delay=draw.choice((1e-4, 5e-3, 0.1)),
        faults=[],
    )
    at = 0.0
    for _ in range(draw.choice((0, 1, 1, 1, 2, 2, 3, 4))):
        # The next one within the meeting that follows the last, or some steps later.
        at += draw.choice((0.1, 1.0, 3.0)) * draw.random()
        group = frozenset(each for each in range(world) if draw.random() < 0.5)
        fault = Fault(
            draw.choice(_KINDS),
            at,
            draw.randrange(world),
            draw.choice((0.5, 5.0, 40.0)) * draw.random(),
            group,
        )
        plan.faults.append(fault)
    return plan
