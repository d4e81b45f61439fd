"""Workers and servers behind links of a given rate: how long a step takes."""

from lab.papers.declaration import Metrics, Settings
from lab.papers.threelc import rank
from lab.ranks.launcher import Launcher
from lab.ranks.links import parse_link
from lab.ranks.namespaces import Namespaces

_SILENCE_SECONDS = 900.0  # longer than any run


def measure(scale: Settings, cell: Settings, seed: int) -> Metrics:
    """A step's milliseconds and bytes, of one design over one link.

    Raises:
        RanksFailed: a rank ended early, or was silent.
        NamespaceError: this machine has no namespaces for us.
    """
    count = scale["workers"] + scale["servers"]
    job = rank.Job(
        servers=scale["servers"],
        network=scale["network"],
        size=scale["size"],
        batches=cell["every"],
        spec=cell["spec"],
        seed=seed,
        steps=scale["steps"],
        seconds=scale["seconds"],
        warm_up=scale["warm_up"],
    )
    rate = parse_link(cell["link"]).bytes_per_second
    with Namespaces(count, rate) as namespaces, Launcher(rank.run, count, namespaces) as ranks:
        ranks.start(job)
        (found,) = ranks.messages(_SILENCE_SECONDS)
        return found
