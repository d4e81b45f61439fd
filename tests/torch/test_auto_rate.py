"""The link's rate that explains plain DDP's step predicts auto's, on measured steps of a page."""

import re
from pathlib import Path

from deltawire.planner import CodecFigures, Link, Machine, ddp_workload, make_plan
from deltawire.torch.auto.decision import link_rate

PAGE = Path(__file__).resolve().parents[2] / "docs/results/speed/slow-links.md"
ROW = re.compile(r"\| (\w+), (\w+) \| `?([^|]*?)`? \| (\d+) \(")
RATES = {"10mbit": 1.25e6, "100mbit": 1.25e7, "1gbit": 1.25e8}
LAYERS = {  # of DDP's buckets, each ready with its last layer
    "lenet5": [25_570, 405_510],
    "resnet20": [13_486] * 20,
    "lstm": [2_000_000, 643_200, 2_010_000],
    "transformer": [1_787_008] * 6,
}
HALF_A_CORE = Machine(cores=0.5, coding_threads=1)
BF16 = CodecFigures("direct(bf16)", "direct", "near-lossless", 16.003, (0.0, 1.5e-9), (0.0, 1e-9))


def planned(workload, rate, codecs):
    link = Link(rate, latency_seconds=2e-4)
    return make_plan(workload, 4, link, codecs, HALF_A_CORE, "lossy", 0.03)


def test_it_is_within_a_sixth_and_better_than_the_links_own_rate():
    cells: dict[tuple[str, str], dict[str, float]] = {}
    for network, link, method, ms in ROW.findall(PAGE.read_text()):
        cells.setdefault((network, link), {})[method.split("`")[0]] = float(ms)
    with_auto = {cell: ms for cell, ms in cells.items() if "auto" in ms}
    assert len(with_auto) == 10
    for (network, link), ms in with_auto.items():
        own = RATES[link]
        layers = [(f"layer{i}", count) for i, count in enumerate(LAYERS[network])]
        workload = ddp_workload(layers, ms["compute alone"] / 1e3)
        # Four ranks on two cores got at least a fifth of a fast link's rate.
        rate = link_rate(
            [own / 5, own],
            ms["plain"] / 1e3,
            lambda rate, workload=workload: planned(workload, rate, []).plain.step_seconds,
        )
        unlost, explained = (
            1e3 * planned(workload, each, [BF16]).rows[0].prediction.step_seconds
            for each in (own, rate)
        )
        assert abs(explained / ms["auto"] - 1) <= 0.155, f"{network}, {link}"
        assert unlost < explained, f"{network}, {link}: no link is faster than it is"
