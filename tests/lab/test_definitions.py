"""The definitions of results.json, on made-up numbers that can be checked by hand."""

import argparse
import dataclasses
import io

import pytest

pytest.importorskip("torch")

from rich.console import Console  # noqa: E402

from lab.demo import methods  # noqa: E402
from lab.demo.definitions import ROW_KEYS  # noqa: E402
from lab.demo.labels import label_of  # noqa: E402
from lab.demo.plots import draw_plots  # noqa: E402
from lab.demo.report import headline  # noqa: E402
from lab.demo.results import (  # noqa: E402  # noqa: E402
    add_ratios,
    busy_warnings,
    failed_repeat,
    load_warnings,
    make_repeat,
    make_row,
    take_times_out,
)
from lab.demo.settings import Settings  # noqa: E402
from lab.demo.table import columns, print_table  # noqa: E402
from lab.ranks.links import parse_link, ring_bytes  # noqa: E402

SETTINGS = Settings(
    network="lenet5",
    ranks=4,
    steps=10,
    batch=64,
    seed=1,
    repeats=1,
    lr=0.06,
    momentum=0.9,
    same_optimizer=False,
    clip=1.0,
    link="100mbit",
    bytes_per_second=12.5e6,
    namespaces=False,
    data="",
    timeout=60.0,
)
PARAMETER_COUNT = SETTINGS.workload.parameters
THRICE = dataclasses.replace(SETTINGS, seed=5, repeats=3)


def make_report(rank: int, **changes) -> dict:
    """A rank's report of a row; milliseconds grow with the rank."""
    report = {
        "accuracy": 0.8,
        "ms_per_step": 100.0 + rank,
        "compute_ms": 40.0 + rank,
        "encode_ms": 1.0 + rank,
        "exchange_ms": 50.0 + rank,
        "decode_ms": 2.0 + rank,
        "bytes_sent": 10 * (1e5 + 100 * rank),
        "digests": "d",
        "parameters": "p",
        "points": [
            {"step": 0, "seconds": 0.0, "wire_mb": 0.0, "accuracy": 0.1},
            {"step": 10, "seconds": 1.0 + rank, "wire_mb": 1.0, "accuracy": 0.8},
        ],
    }
    return {**report, **changes}


def trained_once(name: str, reports: list[dict]) -> dict:
    return make_row(methods.find(name), [make_repeat(SETTINGS.seed, reports)], SETTINGS)


def trained_thrice(name: str, **changes: list) -> dict:
    """A row of three trainings; `changes` lists each one's values, the same on all ranks."""
    repeats = []
    for index, seed in enumerate(THRICE.seeds):
        report = make_report(0, **{key: values[index] for key, values in changes.items()})
        repeats.append(make_repeat(seed, [report] * 4))
    return make_row(methods.find(name), repeats, THRICE)


def failed_row(name: str) -> dict:
    return make_row(methods.find(name), [failed_repeat(SETTINGS.seed, "rank 2 ended")], SETTINGS)


def make_rows() -> list[dict]:
    """Plain DDP at 100 ms, fp32 at 120 ms, bf16 at 60 ms."""
    rows = []
    for name, ms in (("plain", 100.0), ("fp32", 120.0), ("bf16", 60.0)):
        rows.append(trained_once(name, [make_report(rank, ms_per_step=ms) for rank in range(4)]))
    add_ratios(rows)
    return rows


def test_a_ring_sends_one_and_a_half_tensors_with_4_ranks():
    assert ring_bytes(1000, 4) == 1500
    assert ring_bytes(1000, 2) == 1000


def sent_by(name: str, bytes_a_step: float) -> dict:
    sent = bytes_a_step * SETTINGS.steps
    return trained_once(name, [make_report(rank, bytes_sent=sent) for rank in range(4)])


def test_times_smaller_compares_bytes_really_sent():
    fp32 = 4 * PARAMETER_COUNT * 2 * 3 / 4
    rows = [sent_by("fp32", 1.01 * fp32), sent_by("gcomp", fp32 / 2), sent_by("sbc:p=1%@1", 3000)]
    assert rows[1]["times_smaller"] == pytest.approx(2), "without fp32"
    add_ratios(rows)
    assert rows[0]["times_smaller"] == 1
    assert rows[1]["times_smaller"] == pytest.approx(2.02)
    assert rows[2]["times_smaller"] == pytest.approx(1.01 * fp32 / 3000)


def test_bits_per_value_counts_a_tensor_once_however_many_copies_leave():
    fp32 = 4 * PARAMETER_COUNT * 2 * 3 / 4
    assert sent_by("fp32", fp32)["bits_per_value"] == pytest.approx(32)
    assert sent_by("gcomp", fp32)["bits_per_value"] == pytest.approx(32)
    assert sent_by("sbc:p=1%@1", 3 * 4 * PARAMETER_COUNT)["bits_per_value"] == pytest.approx(32)


def test_a_busy_machine_is_noticed():
    rows = make_rows()
    assert busy_warnings(rows, SETTINGS) == busy_warnings([], SETTINGS) == []
    usual = rows[0]["compute_ms"]
    rows[1]["detail"]["repeats"][0]["compute_ms"] = 1.19 * usual
    assert busy_warnings(rows, SETTINGS) == []
    rows[2]["detail"]["repeats"][0]["compute_ms"] = 0.8 * usual
    assert busy_warnings(rows, SETTINGS) == [], "one quiet row"
    rows[1]["detail"]["repeats"][0]["compute_ms"] = 1.21 * usual
    (warning,) = busy_warnings([*rows, failed_row("bf16")], SETTINGS)
    assert warning.startswith("the machine was busy: computing alone took 50 ms a step in one row")


def test_a_machine_that_was_busy_from_the_start_is_noticed():
    assert load_warnings(0.5, cores=2) == []
    (warning,) = load_warnings(0.6, cores=2)
    assert warning.startswith("the machine was busy: other programs used 0.6 of 2 cores")


def test_a_busy_machine_gives_no_times():
    rows = make_rows()
    with_times = columns(rows)
    take_times_out(rows)
    assert not {"ms per step", "times faster"} & set(columns(rows))
    assert "ms per step" in with_times and "times as fast" not in headline(rows)
    assert rows[2]["detail"]["repeats"][0]["ms_per_step"] == 60.0
    assert list(draw_plots(rows)) == ["accuracy-bytes"]


def test_a_machine_that_was_busy_for_a_while_is_noticed_at_its_seed():
    rows = [
        trained_thrice("fp32", compute_ms=[40.0, 60.0, 41.0]),
        trained_thrice("bf16", compute_ms=[40.0, 61.0, 41.0]),
    ]
    (warning,) = busy_warnings(rows, THRICE)
    assert warning.startswith("seed 6: the machine was busy: computing alone took 61 ms")


def test_a_row_of_several_trainings_has_their_medians_and_spread():
    curves = [
        [{"step": 10, "seconds": s, "wire_mb": 1.0, "accuracy": a}]
        for s, a in ((1.0, 0.7), (2.0, 0.9), (4.0, 0.8))
    ]
    row = trained_thrice(
        "bf16",
        accuracy=[0.7, 0.9, 0.8],
        ms_per_step=[30.0, 10.0, 11.0],
        bytes_sent=[1e6, 3e6, 4e6],
        points=curves,
    )
    assert (row["accuracy"], row["accuracy_range"]) == (0.8, [0.7, 0.9])
    assert (row["ms_per_step"], row["ms_per_step_range"]) == (11.0, [10.0, 30.0])
    assert row["wire_mb_per_rank"] == 3.0
    assert row["times_smaller"] == pytest.approx(6 * PARAMETER_COUNT * THRICE.steps / 3e6)
    assert row["detail"]["curve"] == [
        {
            **{"step": 10, "seconds": 2.0, "wire_mb": 1.0, "accuracy": 0.8},
            "accuracy_range": [0.7, 0.9],
        }
    ]
    repeats = row["detail"]["repeats"]
    assert [repeat["seed"] for repeat in repeats] == [5, 6, 7]
    assert [repeat["wire_mb_per_rank"] for repeat in repeats] == [1.0, 3.0, 4.0]


def test_the_spread_has_columns_where_there_is_one():
    rows = [trained_thrice("fp32", accuracy=[0.7, 0.9, 0.8], ms_per_step=[30.0, 10.0, 11.0])]
    texts = {head: text(rows[0]) for head, text in columns(rows).items()}
    assert texts["lowest- highest"] == "70.0-90.0"
    assert texts["fastest- slowest"] == "10-30"
    assert set(texts) - set(columns(make_rows())) == {"lowest- highest", "fastest- slowest"}


@pytest.mark.parametrize(("width", "with_parts"), [(80, False), (130, True)])
def test_a_table_is_never_cut_off(width: int, with_parts: bool):
    screen = io.StringIO()
    console = Console(file=screen, width=width, force_terminal=True, color_system=None)
    rows = [trained_thrice("plain", accuracy=[0.7, 0.9, 0.8]), failed_row("bf16")]
    print_table(rows, THRICE, console)
    shown = screen.getvalue()
    assert "\u2026" not in shown and "..." not in shown  # what rich cuts off ends so
    assert "80.00 %" in shown and "failed" in shown and "yes" in shown
    assert "seeds 5, 6, 7" in " ".join(shown.split())
    assert ("code" in shown) is with_parts


def test_one_training_that_differs_or_fails_counts_for_the_row():
    row = trained_thrice("bf16", digests=["d", "d", "d"])
    assert row["bit_equal"] is True
    repeats = row["detail"]["repeats"]
    repeats[1]["bit_equal"] = False
    assert make_row(methods.find("bf16"), repeats, THRICE)["bit_equal"] is False
    repeats[2] = failed_repeat(7, "rank 2 ended")
    failed = make_row(methods.find("bf16"), repeats, THRICE)
    assert failed["failed"] == "seed 7: rank 2 ended"
    assert failed["accuracy"] is None and failed["accuracy_range"] is None
    assert failed["detail"]["repeats"] == repeats


def test_the_headline_is_the_smallest_row_that_is_as_accurate_as_fp32():
    fp32, near, far = (
        sent_by(name, size) for name, size in (("fp32", 4e6), ("bf16", 4e4), ("sbc:p=1%@1", 40))
    )
    fp32["accuracy"], near["accuracy"], far["accuracy"] = 0.85, 0.837, 0.827
    add_ratios([fp32, near, far])
    assert headline([fp32, near, far]).startswith("bf16: 100 times fewer bytes")
    far["accuracy"] = 0.86
    smallest = "SBC p=1%, 1 step, momentum 0, rate x 5: 100,000 times fewer bytes"
    assert headline([fp32, near, far]).startswith(smallest)
    assert headline([fp32, sent_by("gcomp", 4e6 / 1.73)]) == headline([])
    assert headline([fp32]) == headline([]) == "What each way to exchange gradients costs and gains"


def test_the_headline_does_not_depend_on_the_seed():
    """Rows that train as well as fp32 differ by up to 1.1 points between seeds
    (docs/results/training.md). The headline must name the same row on every machine, and claim no
    order among rows that close."""
    fp32, small = sent_by("fp32", 4e6), sent_by("3lc:s=1.00", 4e4)
    add_ratios([fp32, small])
    for change in (-0.011, -0.0053, -0.0050, -0.0047, 0.0, 0.011):
        fp32["accuracy"], small["accuracy"] = 0.856, 0.856 + change
        told = headline([fp32, small])
        assert told.startswith("3LC s=1.00: 100 times fewer bytes")
        assert told.endswith(
            f"as accurate as fp32 up to what another seed changes "
            f"({85.6 + 100 * change:.1f} % against 85.6 %)"
        )
    assert "1 times as fast as fp32," in told
    plain = sent_by("plain", 4e6)
    plain["ms_per_step"] *= 2
    add_ratios([plain, fp32, small])
    assert "2 times as fast as plain DDP (modelled)," in headline([plain, fp32, small])
    take_times_out([small])
    unsaid = headline([fp32, small])
    assert "100 times fewer bytes than fp32, and as accurate as fp32" in unsaid
    small["accuracy"] = 0.856 - 0.023  # as SBC at every step is
    assert headline([fp32, small]) == headline([])


def test_more_trainings_make_the_headline_stricter():
    fp32, small = trained_thrice("fp32"), trained_thrice("3lc:s=1.00")
    fp32["accuracy"], small["wire_mb_per_rank"] = 0.85, fp32["wire_mb_per_rank"] / 100
    add_ratios([fp32, small])
    small["accuracy"] = 0.85 - 0.008
    assert headline([fp32, small]).startswith("3LC s=1.00: 100 times")
    small["accuracy"] = 0.85 - 0.01
    assert headline([fp32, small]) == headline([])


@pytest.mark.parametrize(
    ("name", "late"),
    [
        *(("fp32", False), ("3lc:s=1.75", False), ("sbc:p=1%@1", True), ("sbc:p=1%@10", False)),
        *(("topk:k=1%", True), ("sbc:p=1%", True), ("onebit", True), ("signsgd", True)),
        *(("twobit:t=0.01", True), ("dropping", True), ("randomk:k=10%", True)),
        *(("signsgd:feedback=off", False), ("dgc:p=1%", False), ("topk:k=1%@10", False)),
        *(("powersgd:rank=4", False), ("gather(topk*: fp32, rest fastsgd)", False)),
        ("gather(conv*: topk:k=1%, rest fp32)", True),
    ],
)
def test_rows_whose_gradients_arrive_late_train_without_momentum(name, late):
    method = methods.find(name)
    own = SETTINGS.of_row(method)
    in_rounds = late and bool(method.local_steps)  # elsewhere `register` sees to it
    assert (own.momentum, own.lr) == ((0.0, pytest.approx(0.3)) if in_rounds else (0.9, 0.06))
    row = make_row(method, [make_repeat(1, [make_report(0)])], SETTINGS)
    assert (row["momentum"], row["learning_rate"]) == (own.momentum, own.lr)
    assert row["detail"]["label"].endswith(", momentum 0, rate x 5") is in_rounds
    assert row["detail"]["label"].endswith(", momentum as rate") is (late and not in_rounds)
    assert SETTINGS.by_rule(method) is (late and not in_rounds)
    same = dataclasses.replace(SETTINGS, same_optimizer=True)
    assert same.of_row(method) == same and not same.by_rule(method)
    without = dataclasses.replace(SETTINGS, momentum=0.0)
    assert not label_of(method, without).endswith("rate")
    assert without.of_row(method) == without


@pytest.mark.parametrize(
    ("name", "by_rule"),
    [("fp32", False), ("3lc:s=1.00", True), ("topk:k=1%", True), ("3lc@10", False)],
)
def test_with_adamw_register_gets_the_optimizer_of_rows_that_it_does_not_suit(name, by_rule):
    method, settings = methods.find(name), dataclasses.replace(SETTINGS, optimizer="adamw")
    assert settings.by_rule(method) is by_rule and settings.of_row(method) == settings
    assert label_of(method, settings).endswith(", optimizer's rule") is by_rule
    assert not dataclasses.replace(settings, same_optimizer=True).by_rule(method)


def test_a_row_has_exactly_the_promised_keys():
    row = make_rows()[0]
    assert tuple(key for key in row if key != "detail") == ROW_KEYS
    assert tuple(ROW_KEYS) == (
        *("method", "momentum", "learning_rate", "accuracy", "steps", "ms_per_step"),
        *("accuracy_range", "ms_per_step_range"),
        *("compute_ms", "encode_ms", "exchange_ms", "decode_ms", "wire_mb_per_rank"),
        *("times_smaller", "bits_per_value", "times_faster", "bit_equal", "failed"),
    )


def test_a_row_is_made_of_medians_and_of_mean_bytes():
    row = trained_once("bf16", [make_report(rank) for rank in range(4)])
    assert row["ms_per_step"] == 101.5
    assert row["ms_per_step_range"] == [101.5, 101.5]
    assert row["compute_ms"] == 41.5
    assert row["encode_ms"] == 2.5
    assert row["wire_mb_per_rank"] == pytest.approx(1.0015)
    assert row["times_smaller"] == pytest.approx(6 * PARAMETER_COUNT / 100_150)
    assert row["bits_per_value"] == pytest.approx(32 / row["times_smaller"])
    assert row["detail"]["spec"] == "direct(bf16)"
    assert row["bit_equal"] is True
    assert row["failed"] is None
    assert row["detail"]["curve"][1]["seconds"] == 2.5


@pytest.mark.parametrize("key", ["digests", "parameters"])
def test_one_rank_that_differs_is_not_bit_equal(key: str):
    reports = [make_report(rank) for rank in range(4)]
    reports[2][key] = "other"
    assert trained_once("bf16", reports)["bit_equal"] is False


def test_times_faster_compares_with_plain_and_without_it_with_fp32():
    plain, fp32, bf16 = make_rows()
    assert plain["times_faster"] == 1
    assert bf16["times_faster"] == pytest.approx(100 / 60)
    add_ratios([fp32, bf16])
    assert bf16["times_faster"] == 2


def test_a_failed_row_does_not_disturb_the_others():
    rows = [*make_rows()[:2], failed_row("bf16")]
    add_ratios(rows)
    assert rows[2]["failed"] == "rank 2 ended"
    assert rows[2]["times_faster"] is None
    assert tuple(key for key in rows[2] if key != "detail") == ROW_KEYS
    assert rows[1]["times_faster"] == pytest.approx(100 / 120)


def test_plain_ddp_is_labelled_modelled():
    plain, fp32, _ = make_rows()
    assert plain["detail"]["label"] == "plain DDP (modelled)"
    assert fp32["detail"]["label"] == "fp32"


def test_links(capsys):
    assert parse_link("100mbit").bytes_per_second == 12.5e6
    assert parse_link("2.5Gbit").bytes_per_second == 312.5e6
    assert parse_link("none").bytes_per_second is None
    for bad in ("100", "100 mb", "0mbit", "-1mbit", "1e3mbit", ""):
        with pytest.raises(ValueError, match="is not a link"):
            parse_link(bad)
    parser = argparse.ArgumentParser()
    parser.add_argument("--link", type=parse_link)
    with pytest.raises(SystemExit):
        parser.parse_args(["--link", "fast"])
    assert "--link: 'fast' is not a link; write e.g. 100mbit" in capsys.readouterr().err
