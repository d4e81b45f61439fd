"""What a step cost and saved: bytes sent, the same messages uncompressed, and the ratio."""

import deltawire.torch
import pytest
import torch
from models import Net, steps_by, train_steps, wrapped
from ranks import results

SUMMED = ("buckets", "elements", "encode_ms", "exchange_ms", "decode_ms", "bytes_sent", "raw_bytes")
STEPS = 3
ELEMENTS = sum(p.numel() for p in Net().parameters())


def check_sums(metrics, records):
    """Totals are the records' sums, the ratios what they say they are."""
    for key in SUMMED:
        assert metrics[key] == records[-1][key]
        assert metrics[f"total_{key}"] == pytest.approx(sum(record[key] for record in records))
    for record in records:
        assert record["ratio"] == record["raw_bytes"] / record["bytes_sent"]
    assert metrics["ratio"] == records[-1]["ratio"]
    assert metrics["total_ratio"] == metrics["total_raw_bytes"] / metrics["total_bytes_sent"]


def measure(rank, world_size, report, spec):
    hook = deltawire.torch.register(model := wrapped(Net()), spec)
    empty = hook.metrics()
    assert empty["ratio"] is None and empty["total_ratio"] is None and empty["raw_bytes"] == 0
    train_steps(model, rank, range(STEPS))
    check_sums(hook.metrics(), hook.step_records)
    return hook.metrics()


COPIES = {"direct": 4, "ring": 4, "gather": 6}  # of an element, by 3 ranks together


@pytest.mark.parametrize("pattern", COPIES)
def test_raw_bytes_are_four_for_each_copy_of_an_element(pattern):
    ranks = results(measure, 3, f"{pattern}(fp32)")
    raw = sum(metrics["raw_bytes"] for metrics in ranks)
    assert raw == 4 * ELEMENTS * COPIES[pattern]
    for metrics in ranks:
        assert metrics["total_raw_bytes"] == STEPS * metrics["raw_bytes"]
        assert 0.95 < metrics["ratio"] < 1, "fp32 saves nothing, and headers cost little"


def test_the_ratio_is_how_many_times_smaller():
    half, small = (results(measure, 2, spec)[0] for spec in ("bf16", "3lc"))
    assert 1.8 < half["ratio"] < 2
    assert small["total_ratio"] > 8
    assert half["raw_bytes"] == small["raw_bytes"]


def rounds(rank, world_size, report, reducer):
    network = Net()
    optimizer = torch.optim.SGD(network.parameters(), 0.05)
    trainer = deltawire.torch.LocalSteps(network, optimizer, steps=2, reducer=reducer)
    steps_by(trainer, network, rank, range(2 * STEPS))
    metrics = trainer.metrics()
    check_sums(metrics, trainer.step_records)
    trainer.close()
    return metrics


def test_a_round_counts_once():
    for metrics in results(rounds, 2, "gather(fp32)"):
        assert metrics["steps"] == STEPS and metrics["local_steps"] == 2
        assert metrics["raw_bytes"] == 4 * ELEMENTS
        assert metrics["total_raw_bytes"] == STEPS * 4 * ELEMENTS
        assert 0.95 < metrics["total_ratio"] < 1
