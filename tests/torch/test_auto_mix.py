"""register(model, "auto") where a codec for each bucket is faster than one for all.

Figures and the steps' times are given, as in test_auto.py; the choice, what travels, and the way
back are real. The decision alone: test_auto_decision.py.
"""

import deltawire
import pytest
from deltawire.torch.auto import codec_figures
from deltawire.torch.auto import measuring as auto_measuring
from deltawire.torch.auto.measuring import LinkProbe, StepTimes
from models import Net, wrapped
from ranks import results
from test_auto import DECIDED, MEASURE, GivenTimes, Sums, slow_link


class ComputesLong(GivenTimes):
    """Backward makes a bucket's gradients every three seconds, as it is said."""

    native = 7.6

    def times(self):
        return [
            StepTimes(tuple(3.0 * i for i in range(len(each.ready))), each.end, each.coded)
            for each in super().times()
        ]


def given_figures(specs):
    """Of a codec that is slow and one that is none; the others are not here."""
    coding = {"direct(int8)": (1e-5, 8.0, "lossy"), "direct(fp32)": (0.0, 32.0, "lossless")}
    rows = []
    for spec in map(deltawire.canonical_spec, specs):
        if spec in coding:
            each, bits, tier = coding[spec]
            time = {"encode": (0.0, each), "decode": (0.0, each)}
            row = {"spec": spec, "pattern": "direct", "tier": tier, "bits_per_value": bits}
            rows.append({**row, **time, "shares_parts": False})
    return rows, []


def choose_by_bucket(rank, world_size, report, coded):
    ComputesLong.coded = coded
    sums = Sums(model := wrapped(Net()), wrapped(Net()))
    codec_figures.Trials.results = lambda trials: given_figures(trials.specs)
    auto_measuring._core.processors = lambda: world_size  # a core a rank
    hook = slow_link(model, "lossy", clock=ComputesLong)
    LinkProbe.result = lambda self, machine: (2e4, 0.0)
    for step in range(DECIDED + 5):
        sums.step(rank, step)
        if step == MEASURE:
            tried = hook.explain().decision
            codecs = {row.name: row.codec for row in hook.explain().tensors.rows}
            sent = hook.metrics()["bytes_sent"]
        if step == DECIDED - 1:
            kept = sums.apart()
    lost = sums.apart()
    metrics = hook.metrics()
    hook.close()
    return tried, codecs, sent, metrics, kept, lost, hook.last_error


@pytest.mark.parametrize("coded", [7.0, 9.0])
def test_what_is_waited_for_is_compressed_and_what_is_hidden_is_not(coded):
    for tried, codecs, sent, metrics, kept, lost, error in results(choose_by_bucket, 2, coded):
        assert error is None and sent > 0
        assert tried.by_bucket[0] == "fp32" and tried.by_bucket[-1] == "int8"
        alone, _ = tried.rows
        assert alone["codec"] == "direct(int8)" and tried.predicted_ms < alone["predicted_ms"]
        # Backward makes the first layers' gradients last.
        assert codecs["layers.0.0.weight"].startswith("int8")
        assert codecs["layers.5.0.weight"].startswith("fp32")
        assert kept > 1e-4, "nothing was left out: nothing is tested"
        if coded < tried.native_ms / 1e3:
            assert metrics["choice"] == tried.spec and metrics["phase"] == "compressing"
            assert metrics["predicted_ms"] == tried.predicted_ms and metrics["measured_ms"] == 7000
        else:
            assert metrics["phase"] == metrics["choice"] == "native" and lost < 1e-5
