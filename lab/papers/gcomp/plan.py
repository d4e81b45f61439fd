"""The planner's prediction of a step, with and without gcomp, for many ranks."""

import json
import subprocess

from deltawire.errors import DeltawireError

from lab.command.paths import DELTAWIRE, REPOSITORY
from lab.papers.declaration import Metrics, Settings


def measure(scale: Settings, cell: Settings, _: int) -> Metrics:
    """How many times more samples a second gcomp gives, by the number of ranks."""
    trace = REPOSITORY / "tests" / "traces" / cell["trace"]
    command: list[object] = [
        *(DELTAWIRE, "plan", "--input", trace, "--parameters", cell["parameters"]),
        *("--codecs", "gcomp", "--link", f"{cell['link']},0.05ms"),
        *("--compute-ms", cell["compute_ms"], "--ranks", ",".join(map(str, cell["ranks"]))),
        *("--seconds", scale["seconds"], "--cores", 12, "--threads", 12, "--json", "-"),
    ]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise DeltawireError(done.stderr.strip())
    report = json.loads(done.stdout)
    found: Metrics = {"bits": report["figures"][0]["bits_per_value"]}
    for plan in report["plans"]:
        (row,) = plan["rows"]
        found[f"gain{plan['ranks']}"] = 100 * (row["times_faster"] - 1)
        below = row["break_even_bits_per_second"]  # or "never", "always"
        if isinstance(below, float):
            found[f"pays_below{plan['ranks']}"] = below / 1e9
    return found
