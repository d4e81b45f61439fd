"""The planner's prediction of a step, with and without gcomp, for many ranks."""

import functools
import json
import sys
import tempfile

from lab.command.paths import DELTAWIRE, said_by
from lab.papers.declaration import Metrics, Settings


def measure(scale: Settings, cell: Settings, _: int) -> Metrics:
    """How many times more samples a second gcomp gives, by the number of ranks."""
    network, optimizer = cell["trace"].split("-")
    folder = _traces(network, optimizer, scale["record"]).name
    command = [
        *(DELTAWIRE, "plan", "--input", f"{folder}/{cell['trace']}"),
        *("--parameters", cell["parameters"], "--codecs", "gcomp"),
        *("--link", f"{cell['link']},0.05ms", "--compute-ms", cell["compute_ms"]),
        *("--ranks", ",".join(map(str, cell["ranks"])), "--seconds", scale["seconds"]),
        *("--cores", 12, "--threads", 12, "--json", "-"),
    ]
    report = json.loads(said_by(*command))
    found: Metrics = {"bits": report["figures"][0]["bits_per_value"]}
    for plan in report["plans"]:
        (row,) = plan["rows"]
        found[f"gain{plan['ranks']}"] = 100 * (row["times_faster"] - 1)
        below = row["break_even_bits_per_second"]  # or "never", "always"
        if isinstance(below, float):
            found[f"pays_below{plan['ranks']}"] = below / 1e9
    return found


@functools.cache
def _traces(network: str, optimizer: str, steps: str) -> tempfile.TemporaryDirectory:
    """A folder with a trace, recorded once for all runs, by a process with one thread."""
    folder = tempfile.TemporaryDirectory(prefix="deltawire-lab-")
    said_by(
        *(sys.executable, "-m", "lab.traces", network, "--optimizers", optimizer),
        *("--size", "small", "--record", steps, "--out", folder.name),
    )
    return folder
