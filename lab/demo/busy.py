"""Warnings that the machine was busy with other work, which spoils measured times."""

from lab.demo.labels import seed_prefix
from lab.demo.settings import Settings

_BUSY = 1.2  # times the compute_ms of the quietest training
_LOAD = 1.5  # per core; a build just before the demo leaves a load of 1


def load_warnings(load_before: float, cores: int) -> list[str]:
    """A line if the machine had other work when the demo began, which may slow all rows."""
    if load_before <= _LOAD * cores:
        return []
    return [
        f"the machine was busy: its load was {load_before:.1f} on {cores} cores before the demo "
        "began, so all times may be too long; run it on an idle machine"
    ]


def busy_warnings(rows: list[dict], settings: Settings) -> list[str]:
    """A line for each seed during which the machine had other work."""
    trained = [it for row in rows for it in row["detail"]["repeats"] if not it["failed"]]
    trained.sort(key=lambda repeat: repeat["compute_ms"])
    quietest = trained[0]["compute_ms"] if trained else 0.0
    slowest = {repeat["seed"]: repeat for repeat in trained}  # of each seed the last
    return [
        f"{seed_prefix(settings, repeat)}the machine was busy: computing alone took "
        f"{repeat['compute_ms']:.0f} ms a step in one row and {quietest:.0f} ms in another, so the "
        "times don't compare; run it on an idle machine"
        for _, repeat in sorted(slowest.items())
        if repeat["compute_ms"] > _BUSY * quietest
    ]
