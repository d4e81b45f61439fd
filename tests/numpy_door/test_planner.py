"""deltawire.planner: what the C++ planner says, through Python."""

import pytest
from deltawire import planner


def figures(spec="bf16", tier="near-lossless", bits=16.0, pattern="direct"):
    return planner.CodecFigures(spec, pattern, tier, bits, (0.0, 0.0), (0.0, 0.0))


WORKLOAD = planner.Workload([([("a", 320_000)], 0.5), ([("b", 640_000)], 1.0)], 1.0)
LINK = planner.Link(1e6)


def test_the_docstrings_example():
    workload = planner.ddp_workload([("weight", 1_000_000)], compute_seconds=0.03)
    assert workload.elements == 1_000_000 and workload.compute_seconds == 0.03
    coding = (2e-6, 4e-10), (2e-6, 5e-10)
    codec = planner.CodecFigures("bf16", "direct", "near-lossless", 16.1, *coding)
    link = planner.Link(12.5e6, latency_seconds=1e-3)
    plan = planner.make_plan(workload, 4, link, [codec])
    assert plan.chosen == 0 and plan.reason.startswith("bf16: ")
    row = plan.rows[0]
    assert row.figures.spec == "bf16" and row.figures.pattern == "direct" and row.allowed
    assert row.times_faster == plan.plain.step_seconds / row.prediction.step_seconds
    assert row.gains_below > 12.5e6


def test_plain_sends_values_of_16_bits_as_they_are():
    buckets = [([("a", 320_000)], 0.5), ([("b", 640_000)], 1.0)]
    halves = planner.Workload(buckets, 1.0, value_bytes=[2, 4])
    plan = planner.make_plan(halves, 2, LINK, [figures()])
    assert 3.2 <= plan.plain.wire_seconds < 3.21
    assert 1.92 <= plan.rows[0].prediction.wire_seconds < 1.93, "the codec's bits are its own"
    with pytest.raises(ValueError, match="1 entries for 2 buckets"):
        planner.Workload(buckets, 1.0, value_bytes=[2])


def test_directions_of_a_link_may_differ():
    link = planner.Link(1e6, 2e5)
    assert (link.up_bytes_per_second, link.down_bytes_per_second) == (1e6, 2e5)
    slow = planner.make_plan(WORKLOAD, 2, link, []).plain.step_seconds
    assert slow > 4 * planner.make_plan(WORKLOAD, 2, LINK, []).plain.step_seconds


def test_the_tier_decides_what_may_be_chosen():
    codecs = [figures("bf16"), figures("3lc", "lossy", 1.0), figures("zstd", "lossless", 31.9)]
    for tier, chosen in (("lossy", 1), ("near-lossless", 0), ("lossless", None)):
        plan = planner.make_plan(WORKLOAD, 2, LINK, codecs, tier=tier)
        assert plan.chosen == chosen
        assert [row.allowed for row in plan.rows] == [tier != "lossless", tier == "lossy", True]
    assert "do not compress" in plan.reason
    assert planner.make_plan(WORKLOAD, 2, LINK, codecs[:1], least_gain=0.9).chosen is None


def test_a_codec_may_never_gain():
    assert planner.make_plan(WORKLOAD, 2, LINK, [figures(bits=40.0)]).rows[0].gains_below is None


def test_cores_and_threads_count():
    slow = planner.CodecFigures("slow", "direct", "lossy", 8.0, (0.0, 1e-6), (0.0, 1e-6))
    times = [
        planner.make_plan(WORKLOAD, 2, planner.Link(1e9), [slow], machine).rows[0]
        for machine in (planner.Machine(0.5), planner.Machine(1.0), planner.Machine(4.0, 4))
    ]
    half, one, four = (row.prediction.step_seconds for row in times)
    assert half > one > four
    assert planner.Machine(1.5, 3).cores == 1.5 and planner.Machine(1.5, 3).coding_threads == 3


def test_the_tier_of_what_was_measured():
    tiers = [planner.tier_of(*each) for each in ((True, 0.0), (False, 0.0017), (False, 0.01))]
    assert tiers == ["lossless", "near-lossless", "lossy"]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: planner.make_plan(WORKLOAD, 1, LINK, []), "ranks"),
        (lambda: planner.make_plan(WORKLOAD, 2, planner.Link(0.0), []), "rate up"),
        (lambda: planner.make_plan(WORKLOAD, 2, LINK, [], tier="lossles"), "'near-lossless'"),
        (lambda: planner.make_plan(planner.Workload([], 1.0), 2, LINK, []), "no values"),
        (lambda: figures(pattern="powersgd"), "knows direct, ring and gather"),
        (lambda: figures(tier="most"), "tier='most' is unknown"),
    ],
)
def test_what_can_not_be_planned(call, says):
    with pytest.raises(ValueError, match=says):
        call()
