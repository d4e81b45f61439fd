"""The demo's files: results.json, report.html and its plots, each written whole or not at all."""

import datetime
import json
import os
import platform
import subprocess
import time
from importlib import metadata
from pathlib import Path

import deltawire
import numpy as np
import torch

from lab.command.files import processor, write_whole
from lab.demo.arguments import Request
from lab.demo.definitions import DEFINITIONS
from lab.demo.plots import draw_plots
from lab.demo.report import render_report
from lab.demo.settings import POINT_IMAGES, SCHEDULE
from lab.ranks.links import BURST_BYTES


def write_results(
    rows: list[dict], request: Request, command: str, warnings: list[str], used: float
) -> Path:
    """Writes all files into request.out and returns the report's path. `used`: what `used_cores`
    said before."""
    results = {
        "command": command,
        "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "settings": in_words(request),
        "machine": {**machine(), "cores_used_before": round(used, 1)},
        "versions": versions(),
        "warnings": warnings,
        "definitions": DEFINITIONS,
        "rows": rows,
    }
    request.out.mkdir(parents=True, exist_ok=True)
    plots = draw_plots(rows)
    for name, svg in plots.items():
        write_whole(request.out / f"{name}.svg", svg)
    write_whole(request.out / "results.json", json.dumps(results, indent=2) + "\n")
    report = request.out / "report.html"
    write_whole(report, render_report(results, plots))
    return report


def used_cores(seconds: float = 1.0) -> float:
    """How many cores' time programs take now. (A load average still has what has ended.)"""

    def ticks() -> int:
        with open("/proc/stat") as file:
            counts = [int(word) for word in file.readline().split()[1:8]]
        return sum(counts) - counts[3] - counts[4]  # idle, and waiting for a disk

    before = ticks()
    time.sleep(seconds)
    return (ticks() - before) / os.sysconf("SC_CLK_TCK") / seconds


def machine() -> dict:
    """The hardware and the load, on which times depend."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / 2**30, 1),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "load_at_the_end": round(os.getloadavg()[0], 1),  # of a minute, our ranks included
    }


def versions() -> dict:
    """The versions of everything that computes."""
    return {
        "deltawire": deltawire.__version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "matplotlib": metadata.version("matplotlib"),
    }


def _commit() -> str:
    """The checkout's commit from `git describe`; "unknown" outside a checkout."""
    git = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(
            git, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.strip()


def in_words(request: Request) -> dict:
    """Every setting that all rows share, as results.json has it."""
    settings = request.settings
    shaping = "none: the bare loopback"
    if settings.namespaces:
        shaping = f"tbf on veth pairs between network namespaces, burst {BURST_BYTES:,} bytes"
    elif settings.bytes_per_second is not None:
        shaping = (
            f"a token bucket in the transport, one per rank and direction, "
            f"{settings.bytes_per_second:,.0f} "
            f"bytes/s, burst {BURST_BYTES:,} bytes; plain DDP is modelled: each all-reduce "
            "completes no "
            "earlier than 2 (N-1)/N x bytes / rate after its start"
        )
    return {
        "network": settings.workload.words,
        "parameters": settings.workload.parameters,
        "data": settings.data,
        "ranks": settings.ranks,
        "batch_per_rank": settings.batch,
        "steps": settings.steps,
        "optimizer": f"SGD, momentum {settings.momentum:g}"
        if settings.optimizer == "sgd"
        else "AdamW",
        "learning_rate": settings.lr,
        "schedule": SCHEDULE,
        "gradient_clipping": f"mean gradient's norm at most {settings.clip:g}"
        if settings.clip
        else "none",
        "seeds": settings.seeds,
        "repeats": settings.repeats,
        "link": settings.link,
        "shaping": shaping,
        "threads_per_rank": 1,
        "evaluation": f"points of the curves on the first {POINT_IMAGES:,} test images, the last "
        "point and "
        "the table on all; the clock stands still meanwhile",
    }
