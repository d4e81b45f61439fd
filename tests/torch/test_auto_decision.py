"""What auto decides, from given figures: the slowest rank counts, noise does not, changes do."""

import types

import pytest
import torch
from deltawire.errors import InvalidArgumentError
from deltawire.torch.auto import decision as auto_decision
from deltawire.torch.auto import mix as auto_mix
from deltawire.torch.auto import registration
from deltawire.torch.auto.codec_figures import candidates, sample_places
from deltawire.torch.auto.decision import (
    Decision,
    choice_of,
    cores_of,
    decision_of,
    departs,
    judge,
    link_rate,
    steps_of,
)
from deltawire.torch.auto.hook import AutoExplanation
from deltawire.torch.auto.native import HALVED
from test_auto_measuring import figures_of

NATIVE = Decision(None, "why", 100.0, 40.0, 95.0, 95.0)
CODED = Decision("direct(bf16)", "why", 70.0, 40.0, 95.0, 60.0)


def said(ends, exchange=0.02):
    return {"ready": [[0.01, end - exchange] for end in ends], "ends": list(ends)}


def of_rank(**changes):
    figures = {
        "spec": "direct(bf16)",
        "pattern": "direct",
        "tier": "near-lossless",
        "bits_per_value": 16.2,
        "encode": (1e-6, 1e-10),
        "decode": (1e-6, 1e-10),
        "shares_parts": False,
    }
    rank = {
        "buckets": [[["a", 100_000]], [["b", 100_000], ["c", 300]]],
        "value_bytes": [4, 4],
        "figures": [figures],
        "uncoded": None,
        "refused": [],
        "link": [1e6, 1e-3],
        "copies": [0.0, 0.0],
        "shares_memory": False,
        "host": "one",
        "processors": 4,
        "threads": 1,
    }
    return said([1.0] * 8, 0.9) | rank | changes


def eighth(**changes):
    """A rank whose codec takes an eighth of the bits, and which still names itself bf16."""
    (figures,) = of_rank()["figures"]
    return of_rank(figures=[figures | {"bits_per_value": 4.0}], **changes)


def test_of_each_step_the_slowest_rank_counts():
    ranks = [
        {"ready": [[1.0, 2.0], [1.0, 6.0], [1.0, 2.0]], "ends": [3.0, 7.0, 3.0]},
        {"ready": [[1.0, 6.0], [1.0, 2.0], [2.0, 6.0]], "ends": [7.0, 3.0, 7.0]},
    ]
    steps = steps_of(ranks)
    assert steps.ready == (1.0, 6.0) and steps.end == 7.0, "each rank's own median is 3 or 2"
    assert steps.exchange == 1.0 and steps.count == 3


def test_the_latest_steps_count_where_a_rank_has_seen_more():
    assert steps_of([said([9.0, 1.0, 1.0]), said([1.0, 1.0])]).count == 2


@pytest.mark.parametrize(
    "ranks", [[said([]), said([1.0])], [said([1.0]), {"ready": [[1.0]], "ends": [1.0]}]]
)
def test_too_little_to_say(ranks):
    assert steps_of(ranks) is None
    assert departs(CODED, ranks) is None
    enough = [said([1.0]), said([1.0])]
    for coded, native in ((ranks, enough), (enough, ranks)):
        both = [a | {"native": b} for a, b in zip(coded, native, strict=True)]
        assert judge(CODED, both) is None


def test_a_choice_is_made_of_the_longest_latency_and_what_all_ranks_can_code():
    chosen = auto_decision.choose([eighth(), eighth(link=[5e5, 2e-3])], "lossy")
    assert chosen.spec == "direct(bf16)" and chosen.link[1] == 2e-3
    assert chosen.predicted_ms < chosen.plain_ms
    refused = of_rank(figures=[], refused=["bf16: no"])
    native = auto_decision.choose([eighth(), refused], "lossy")
    assert native.spec == HALVED and native.refused == ("bf16: no",)
    assert [row["codec"] for row in native.rows] == [HALVED]
    assert auto_decision.choose([eighth(), refused], "lossless").spec is None


def test_where_ranks_share_memory_values_that_are_not_sent_are_tried():
    def choose(tier="lossless", **changes):
        given = {"shares_memory": True} | changes
        return auto_decision.choose([of_rank(**given), of_rank(**given)], tier).spec

    assert choose() == "direct(fp32)" and choose(shares_memory=False) is None
    assert choose("near-lossless", link=[1e11, 1e-6]) == "direct(fp32)", "also instead of halves"
    assert choose("near-lossless") == "direct(fp32)", "coding alone takes longer"
    assert choose(value_bytes=[4, 2]) is None and choose(copies=[1e-10, 0.0]) is None
    mixed = [of_rank(shares_memory=True), of_rank()]
    assert auto_decision.choose(mixed, "lossless").spec is None


def test_halves_in_the_native_all_reduce_win_unless_a_codec_is_clearly_faster():
    """Those are torch's hooks, which no choice may be slower than."""
    chosen = auto_decision.choose([of_rank()] * 2, "near-lossless")
    assert chosen.spec == HALVED and chosen.reason.startswith("native(bf16): ")
    rows = {row["codec"]: row for row in chosen.rows}
    assert chosen.predicted_ms == rows[HALVED]["predicted_ms"] < 0.6 * chosen.plain_ms
    assert 0.95 * chosen.predicted_ms < rows["direct(bf16)"]["predicted_ms"]
    assert auto_decision.choose([eighth()] * 2, "near-lossless").spec == "direct(bf16)"
    assert auto_decision.choose([of_rank(value_bytes=[2, 2])] * 2, "lossy").spec != HALVED
    fast = [of_rank(link=[1e9, 1e-5], **said([0.9] * 8, 0.001))] * 2
    assert auto_decision.choose(fast, "near-lossless").spec is None


@pytest.mark.parametrize(
    ("native", "rate"),
    [
        (2.0, 1e6),  # between what the ranks measured: as it was
        (4.5, 4e5),  # the slowest measured by a quarter too much
        (60.0, 3.2e5),  # a step that something else made long
        (0.6, 2.5e6),  # and one that is too short for any of them
    ],
)
def test_the_native_steps_say_how_fast_the_link_is(native, rate):
    """Half a second of computing, and 1.5 or 1.6 MB."""
    found = link_rate([4e5, 2e6], native, lambda r: 0.5 + (1.5e6 if r > 9e5 else 1.6e6) / r)
    assert found == pytest.approx(rate, rel=1e-3)


def test_what_computing_hides_says_nothing_about_the_link():
    assert link_rate([4e5, 2e6], 0.5, lambda r: max(0.5, 1e5 / r)) == 4e5


def test_plain_is_predicted_as_it_was_measured_where_the_link_explains_it():
    ranks = [of_rank(link=[1.2e6, 1e-3]), of_rank(link=[0.7e6, 1e-3])]
    chosen = auto_decision.choose(ranks, "lossy")
    assert chosen.plain_ms == pytest.approx(chosen.native_ms, rel=1e-3)
    assert 0.7e6 < chosen.link[0] < 1.2e6


def test_the_native_exchange_of_16_bits_takes_half(monkeypatch):
    monkeypatch.setattr(auto_decision, "_BEYOND", 1.0)  # the link is what the ranks measured
    halves = [of_rank(value_bytes=[4, 2])] * 2
    plain = [auto_decision.choose(said, "lossless") for said in ([of_rank()] * 2, halves)]
    # The second bucket's 100,300 values, by a megabyte a second; it is the last to end.
    assert plain[0].plain_ms - plain[1].plain_ms == pytest.approx(2 * 100.3, rel=0.02)
    assert plain[0].native_bits == 32 and plain[1].native_bits == pytest.approx(24, rel=0.01)
    none_left = [of_rank(value_bytes=[2, 2], **said([1.0] * 8, 0.9))] * 2
    assert auto_decision.choose(none_left, "near-lossless").spec is None, "bf16 saves nothing there"


@pytest.mark.parametrize(
    ("dtypes", "tier", "tried", "left_out"),
    [
        ({"float32"}, "near-lossless", "zstd bf16", "gcomp:cut=12 gather(zstd)"),
        ({"bfloat16"}, "lossless", "gcomp:lossless=on gather(zstd)", "zstd bf16"),
        ({"bfloat16", "float16"}, "near-lossless", "gcomp:lossless=on bf16", "fp16 int8"),
        ({"float16"}, "near-lossless", "gcomp:lossless=on fp16", "bf16"),
        ({"float32", "float16"}, "lossy", "zstd gcomp:cut=12 bf16 int8", "gather(zstd)"),
    ],
)
def test_what_is_tried_depends_on_the_gradients(dtypes, tier, tried, left_out):
    found = candidates(tier, dtypes)
    assert set(tried.split()) <= set(found) and not set(left_out.split()) & set(found)


def test_what_16_bits_take():
    """docs/guides/planner.md, "In training"."""
    drawn = torch.randn(20_000, generator=torch.Generator().manual_seed(1))
    specs = ["gcomp:lossless=on", "gather(zstd)", "fp32"]
    for halves, most in ((drawn.bfloat16(), 11), (drawn.half(), 14)):
        rows, refused = figures_of(specs, halves)
        assert not refused and {row["tier"] for row in rows} == {"lossless"}
        gcomp, zstd, plain = (row["bits_per_value"] for row in rows)
        assert most - 1 < gcomp < most and gcomp < zstd <= plain and 16 < plain < 16.1


def test_a_tier_forbids():
    ranks = [eighth(), eighth()]
    assert auto_decision.choose(ranks, "lossless").spec is None
    assert auto_decision.choose(ranks, "near-lossless").spec == "direct(bf16)"


def of_two_buckets(names="ab", **changes):
    """A second apart on one core: coding the first takes 0.17 s of it, and sending it as it is
    nothing that computing doesn't hide; for the second all wait."""
    slow = {
        "spec": "direct(int8)",
        "pattern": "direct",
        "tier": "lossy",
        "bits_per_value": 8.0,
        "encode": [0.0, 4e-7],
        "decode": [0.0, 4e-7],
        "shares_parts": False,
    }
    free = {"spec": "direct(fp32)", "tier": "lossless", "bits_per_value": 32.0}
    uncoded = slow | free | {"encode": [0.0, 0.0], "decode": [0.0, 0.0]}
    given = {
        "buckets": [[[names[0], 120_000]], [[names[1], 100_000]]],
        "figures": [slow],
        "uncoded": uncoded,
        "link": [1e6, 0.0],
        "processors": 2,
        "ready": [[1.0, 2.0]] * 8,
        "ends": [2.4] * 8,
    }
    return of_rank(**given | changes)


@pytest.fixture
def codecs_alone(monkeypatch):
    """No halves in the native all-reduce."""
    monkeypatch.setattr(auto_decision, "_or_halved", lambda chosen, _: chosen)


def test_a_codec_for_each_bucket_where_that_is_faster(codecs_alone):
    ranks = [of_two_buckets()] * 2
    chosen = auto_decision.choose(ranks, "lossy")
    assert (
        chosen.spec == "direct(b: int8, rest fp32)" or chosen.spec == "direct(a: fp32, rest int8)"
    )
    assert chosen.by_bucket == ("fp32", "int8")
    alone, _ = chosen.rows
    assert chosen.predicted_ms < 0.99 * alone["predicted_ms"]
    assert (
        chosen.label == "direct, by bucket: fp32 in 0; int8 in 1" and chosen.label in chosen.reason
    )
    assert f"with direct(int8) in all buckets {alone['predicted_ms']:.2f} ms" in chosen.reason
    assert decision_of(chosen.as_dict()) == chosen
    explained = str(AutoExplanation("lossy", "compressing", chosen, None))
    assert "direct(int8) *" in explained and chosen.label in explained


def test_one_codec_for_all_where_rules_or_figures_cannot_say_more(codecs_alone):
    spaced = [of_two_buckets(names=["a b", "c d"])] * 2
    chosen = auto_decision.choose(spaced, "lossy")
    assert chosen.spec == "direct(int8)" and not chosen.by_bucket
    (refused,) = chosen.refused
    assert "can't stand in a rule" in refused
    unknown = [of_two_buckets(), of_two_buckets(uncoded=None)]
    assert auto_decision.choose(unknown, "lossy").spec == "direct(int8)"
    assert auto_decision.choose([of_two_buckets()] * 2, "lossless").spec is None


def test_a_codec_for_each_bucket_must_beat_the_measured_step_and_stay_faster():
    short = [of_two_buckets(ends=[2.1] * 8)] * 2
    decision = auto_decision.choose(short, "lossy")
    assert decision.spec is None and not decision.by_bucket
    chosen = auto_decision.choose([of_two_buckets()] * 2, "lossy")
    ready = {"ready": [[1.0, 2.0]] * 4}
    slower = ready | {"ends": [3.0] * 4, "native": ready | {"ends": [2.4] * 4}}
    after = judge(chosen, [slower] * 2)
    assert after.spec is None and not after.by_bucket
    assert f"with {chosen.label} a step took 3000.00 ms" in after.reason


def test_rules_give_each_tensor_its_buckets_codec():
    buckets = [[("a", 1), ("b", 2)], [("c", 3)], [("d", 4)]]
    spec = auto_mix.rules("ring", buckets, ["bf16", "fp32", "bf16"])
    assert spec == "ring(c: fp32, rest bf16)"
    text = auto_mix.label("ring", ["bf16", "fp32", "bf16", "bf16"])
    assert text == "ring, by bucket: bf16 in 0, 2-3; fp32 in 1"
    for name in ("a b", "a*", "a?", "a,b", "a(b)", "a<b"):
        with pytest.raises(InvalidArgumentError):
            auto_mix.rules("ring", [[(name, 1)], *buckets], ["fp32", *["bf16"] * 3])
    many = [[(str(i), 1) for i in range(auto_mix.MOST_NAMES + 1)] for _ in range(2)]
    with pytest.raises(InvalidArgumentError):
        auto_mix.rules("ring", many, ["fp32", "bf16"])


def test_a_measured_step_that_is_short_counts_more_than_a_predicted_one():
    ranks = [of_rank(**said([0.15] * 8, 0.1)), of_rank(**said([0.15] * 8, 0.1))]
    decision = auto_decision.choose(ranks, "lossy")
    assert decision.spec is None and "was measured as 150.00 ms" in decision.reason


@pytest.mark.parametrize("changes", [{"buckets": []}, {"figures": [], "refused": []}, said([])])
def test_a_rank_without_measurements_makes_all_measure_again(changes):
    assert auto_decision.choose([of_rank(), of_rank(**changes)], "lossy") is None


def test_ranks_of_one_machine_share_its_cores():
    alone = {"host": "b", "processors": 4}
    assert cores_of([{"host": "a", "processors": 6}] * 4 + [alone]) == 1.5


@pytest.mark.parametrize(
    ("ms", "stays"), [(60, True), (95, True), (98, False), (100, False), (105, False)]
)
def test_a_choice_stays_where_it_is_faster_beyond_noise(ms, stays):
    off = (-3, -2, -1, 0, 0, 1, 2, 3)
    coded, native = ([1e-3 * (middle + each) for each in off] for middle in (ms, 100))
    after = judge(CODED, [said(coded) | {"native": said(native, 0.03)}] * 2)
    assert after.spec == ("direct(bf16)" if stays else None)
    assert after.native_ms == pytest.approx(100), "of the same moments, not of before"
    assert after.exchange_ms == pytest.approx(20 if stays else 30)
    if not stays:
        assert "back to the native" in after.reason and after.predicted_ms == after.plain_ms
        assert "no gain beyond the noise of 2.79 ms" in after.reason


def test_a_choice_as_fast_as_native_goes_even_without_noise():
    same = said([0.1] * 4, 0.03)
    assert judge(CODED, [same | {"native": same}] * 2).spec is None


@pytest.mark.parametrize(
    ("exchange", "why"), [(0.04, False), (0.075, False), (0.085, True), (0.015, True)]
)
def test_an_exchange_that_takes_twice_or_half_as_long_is_another(exchange, why):
    assert bool(departs(NATIVE, [said([0.1] * 4, exchange)] * 2)) == why


def test_what_is_small_beside_the_step_changes_nothing():
    tiny = Decision(None, "why", 100.0, 1.0, 95.0, 95.0)
    assert departs(tiny, [said([0.1] * 4, 0.009)] * 2) is None
    assert "1.00 ms" in departs(tiny, [said([0.1] * 4, 0.012)] * 2)


@pytest.mark.parametrize("change", [{"spec": 3}, {"native_ms": "soon"}, {"more": 1}])
def test_damaged_decisions_are_refused(change):
    assert decision_of(CODED.as_dict()) == CODED
    with pytest.raises(ValueError):
        decision_of(CODED.as_dict() | change)
    with pytest.raises(InvalidArgumentError, match="damaged"):
        choice_of({"auto": "[" * 9999})


def test_copies_from_a_device_are_counted():
    """The slowest rank's."""
    near, far = eighth(), eighth(copies=[1e-6, 2e-6])
    spec = auto_decision.choose([near, near], "near-lossless").spec
    there, back = 4e3 * 1e-6 * 200_300, 4e3 * 2e-6 * 100_300
    plans = [auto_decision.choose(ranks, "near-lossless") for ranks in ([near] * 2, [near, far])]
    assert spec == "direct(bf16)" and plans[1].spec == HALVED, "which needs no copies"
    assert plans[0].plain_ms == plans[1].plain_ms
    ((here, _), (afar, _)) = (plan.rows for plan in plans)
    longer = afar["predicted_ms"] - here["predicted_ms"]
    assert back < longer <= there + back


def test_a_model_on_several_devices_has_no_clock():
    parameters = types.SimpleNamespace(sparse=[], devices={"cuda:0", "cuda:1"})
    with pytest.raises(InvalidArgumentError, match="the model is on several; name a codec"):
        registration._check_tensors(parameters)


@pytest.mark.parametrize("elements", [1, 81_920, 81_921, 10_000_000])
def test_samples_are_parts_within_the_tensor(elements):
    places = sample_places(elements, elements)
    assert sum(count for _, count in places) == elements
    few = sample_places(elements, max(1, elements // 10))
    assert 0 < len(few) <= -(-len(places) // 10) and set(few) <= set(places)
