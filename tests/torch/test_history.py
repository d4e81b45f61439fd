"""What a rank counts and keeps of its steps."""

import logging
import types

from deltawire.errors import make_error
from deltawire.session.history import RECORDED_STEPS, History

WAITING = ("measured_step", "residual_to_gradient", "waiting_steps", "sent_share")


def report(digest=0, **changes):
    """As of one bucket."""
    values = {
        "element_count": 10,
        "encode_seconds": 0.001,
        "exchange_seconds": 0.002,
        "decode_seconds": 0.003,
        "bytes_sent": 20,
        "raw_bytes": 60,
        "finite": True,
        "flow": None,
    }
    return types.SimpleNamespace(digest=digest, **{**values, **changes})


def test_the_newest_records_are_kept_and_all_steps_counted():
    history = History(0)
    for number in range(RECORDED_STEPS + 3):
        history.add(report(digest=number), last=True)
    assert RECORDED_STEPS == 4096
    assert [record["digest"] for record in history.records] == list(range(3, RECORDED_STEPS + 3))
    metrics = history.metrics()
    assert metrics["steps"] == RECORDED_STEPS + 3
    assert metrics["total_bytes_sent"] == 20 * (RECORDED_STEPS + 3)


def test_a_step_is_the_sum_of_its_buckets():
    history = History(0)
    history.add(report(digest=1), last=False)
    assert history.metrics()["steps"] == 0 and history.metrics()["total_elements"] == 0
    history.add(report(digest=2, bytes_sent=10, raw_bytes=30), last=True, also={"local_steps": 4})
    assert history.metrics() == {
        "steps": 1,
        "nonfinite_steps": 0,
        "finite": True,
        **{"buckets": 2, "elements": 20, "encode_ms": 2, "exchange_ms": 4, "decode_ms": 6},
        **{"bytes_sent": 30, "raw_bytes": 90, "ratio": 3, "digest": 2, "local_steps": 4},
        **{"total_buckets": 2, "total_elements": 20, "total_encode_ms": 2},
        **{"total_exchange_ms": 4, "total_decode_ms": 6, "total_bytes_sent": 30},
        **{"total_raw_bytes": 90, "total_ratio": 3},
        **dict.fromkeys(WAITING),
    }


def test_what_waits_is_of_the_latest_measured_step():
    history = History(0)
    sums = {"given": 4.0, "sent": 9.0, "left": 36.0, "due": 50.0, "sent_of_due": 10.0}
    history.add(report(flow={"step": 15.0, **sums}), last=True)
    history.add(report(), last=True)
    metrics = history.metrics()
    assert [metrics[key] for key in WAITING] == [15, 3.0, 2.0, 0.2]
    history.add(report(flow={"step": 31.0, **dict.fromkeys(sums, 0.0)}), last=True)
    assert [history.metrics()[key] for key in WAITING] == [31, None, None, None]


def test_the_first_error_stays_and_is_logged_once(caplog):
    history = History(3)
    first = make_error("PeerLost", "rank 1 is gone", 1)
    with caplog.at_level(logging.ERROR, logger="deltawire"):
        history.fail(first)
        history.fail(make_error("Aborted", "rank 2 gave up", 2))
    assert history.last_error is first
    assert [record.getMessage() for record in caplog.records] == ["rank 3: rank 1 is gone"]


def test_a_bucket_ends_with_its_report_or_its_error_and_advice():
    history = History(0, "skip the step")
    assert history.end(None, report(digest=7), last=True, also={"local_steps": 2}) is None
    assert history.metrics()["local_steps"] == 2
    error = history.end(make_error("NotFinite", "element 3 is NaN", 1), None, last=True)
    assert history.last_error is error
    assert (str(error), error.code, error.suspect) == (
        "element 3 is NaN; skip the step",
        "NotFinite",
        1,
    )
    plain = make_error("PeerLost", "rank 1 is gone", 1)
    assert history.end(plain, None, last=True) is plain
