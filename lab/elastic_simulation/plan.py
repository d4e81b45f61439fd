"""What a seed decides before a job of an elastic session is simulated."""

import dataclasses
import random

_KINDS = (*3 * ("kill",), "power off", *2 * ("freeze",), "split", "leave", "raise", *2 * ("join",))
SCENES = ("a host freezes", "a giver freezes", "a member stalls", "a misfit", "a crowd")
_CROWD = 10  # processes that join and leave again


@dataclasses.dataclass
class Fault:
    """What happens to a process, `at` seconds after the job began: "kill", "power off", "freeze",
    "split" (the processes in `group` don't hear the others), "leave", "raise" or "join"; "stall": a
    call of its program keeps the GIL; "freeze host": whoever hosts the next meeting freezes when it
    has decided; "freeze giver": whoever gives its residuals next, when it is asked for them;
    "misfit": a process with other shapes wants to join."""

    kind: str
    at: float
    process: int
    lasts: float
    group: frozenset[int] = frozenset()


@dataclasses.dataclass
class Plan:
    """What a seed decides.

    Attributes:
        scene: what happens besides the first faults, if anything: one of SCENES.
        is_pure: there are no other faults, so that more is promised.
        text_bytes: the longest message; a short one, so that few that leave do what many would.
    """

    seed: int
    world: int
    steps: int
    pause: float
    timeout: float
    meeting: float
    delay: float
    faults: list[Fault]
    scene: str = ""
    is_pure: bool = False
    text_bytes: int = 1 << 20


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
    _draw_scene(plan, random.Random(f"{seed}: a scene"))
    return plan


# A third of the seeds have one besides, as the first ones were without.
def _draw_scene(plan: Plan, draw: random.Random) -> None:
    if draw.random() > 1 / 3:
        return
    plan.scene, plan.is_pure = draw.choice(SCENES), not plan.faults
    if plan.is_pure:
        plan.world, plan.steps, plan.pause = 5, 80, 1.0
    at = 1.0 + 2.0 * draw.random()
    victim, other = draw.sample(range(plan.world), 2)
    kill = Fault("kill", at, victim, 0.0)
    if plan.scene in ("a host freezes", "a giver freezes"):
        lasts = draw.choice((5.0, 10.0, 1.5 * plan.meeting)) * draw.random()
        kind = "freeze host" if plan.scene == "a host freezes" else "freeze giver"
        plan.faults += [kill, Fault(kind, at, 0, lasts)]
    elif plan.scene == "a member stalls":
        # As long as a host waits for a member that answers, even where the time to meet is short.
        plan.faults += [Fault("stall", at, other, draw.uniform(3.1, 4.2)), kill]
        kill.at += 0.5 * draw.random()
    elif plan.scene == "a misfit":
        plan.faults.append(Fault("misfit", at, 0, 0.0))
    elif plan.is_pure:
        # A step is committed between two of them.
        plan.text_bytes, plan.delay, plan.pause, plan.steps = 2000, 1e-4, 0.2, 150
        for number in range(_CROWD):
            plan.faults += [
                Fault("join", at + 1.2 * number, 0, 0.0),
                Fault("raise", at + 1.2 * number + 0.6, plan.world + number, 0.0),
            ]
