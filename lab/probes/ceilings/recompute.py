"""Recomputes the predictions of "auto" from a table of `lab.probes.ceilings`.

    python -m lab.probes.ceilings.recompute docs/results/speed/slow-links.md

For each cell with an `auto` row it takes the time of computing alone and plain DDP's step, finds
the link rate that explains plain (`link_rate`, between a fifth of the nominal rate and all of it:
the table lacks the probe's measurement), and predicts the chosen exchange with that rate, and with
the nominal rate for comparison. The codec is measured here, on random values; layers are assumed to
take equally long, and each rank to have half a core. Steps include the optimizer, predictions
don't.
"""

import re
import sys
from pathlib import Path

import torch
from deltawire.planner import CodecFigures, Link, Machine, ddp_workload, make_plan
from deltawire.torch.auto.codec_figures import measure
from deltawire.torch.auto.decision import link_rate

from lab.ranks.links import parse_link

_RANKS = 4
_LATENCY = 2e-4  # seconds, between namespaces
_LEAST_SHARE = 5  # four ranks on two cores get at least a fifth of a fast link's rate
_ROW = re.compile(r"\| (\w+), (\w+) \| `?([^|]*?)`? \| (\d+) \(")
# The buckets of DDP; a bucket is ready with its last layer.
_LAYERS = {
    "lenet5": [25_570, 405_510],
    "resnet20": [13_486] * 20,
    "lstm": [2_000_000, 643_200, 2_010_000],
    "transformer": [1_787_008] * 6,
}
_MACHINE = Machine(cores=0.5, coding_threads=1)


def recomputed(page: str, figures: CodecFigures) -> list[tuple[str, str, float, float, float]]:
    """(network, link, measured, predicted at the link's rate, at plain's rate), in milliseconds."""
    cells: dict[tuple[str, str], dict[str, float]] = {}
    for network, link, method, ms in _ROW.findall(page):
        cells.setdefault((network, link), {})[method.split("`")[0]] = float(ms)
    rows = []
    for (network, link), by_method in cells.items():
        if "auto" not in by_method:
            continue
        own = parse_link(link).bytes_per_second
        layers = [(f"layer{i}", count) for i, count in enumerate(_LAYERS[network])]
        workload = ddp_workload(layers, by_method["compute alone"] / 1e3)

        def plan(rate: float, codecs: list[CodecFigures], workload=workload):
            line = Link(rate, latency_seconds=_LATENCY)
            return make_plan(workload, _RANKS, line, codecs, _MACHINE, "lossy", 0.03)

        rate = link_rate(
            [own / _LEAST_SHARE, own],
            by_method["plain"] / 1e3,
            lambda rate, plan=plan: plan(rate, []).plain.step_seconds,
        )
        at = [1e3 * plan(r, [figures]).rows[0].prediction.step_seconds for r in (own, rate)]
        rows.append((network, link, by_method["auto"], *at))
    return rows


def bf16_here() -> CodecFigures:
    """bf16, which the table's `auto` chose everywhere, at its speed on this machine."""
    drawn = torch.randn(81_920, generator=torch.Generator().manual_seed(1))
    own = measure(["bf16"], {"drawn": drawn}, 256)[0][0]
    keys = ("spec", "pattern", "tier", "bits_per_value", "encode", "decode")
    return CodecFigures(*(own[key] for key in keys))


def main(arguments: list[str]) -> int:
    """Exit status 0, or 2 for wrong usage."""
    if len(arguments) != 1:
        print("usage: python -m lab.probes.ceilings.recompute PAGE.md", file=sys.stderr)
        return 2
    page = Path(arguments[0]).read_text()
    print("| network, link | measured ms | at the link's rate | at plain's rate |")
    print("|---|---:|---:|---:|")
    for network, link, measured, *at in recomputed(page, bf16_here()):
        cells = [f"{ms:.0f} ({ms / measured - 1:+.0%})" for ms in at]
        print(f"| {network}, {link} | {measured:.0f} | {' | '.join(cells)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
