"""The figures of traces, against formulas by hand, file sizes, and sums that must be conserved."""

import collections
import math

import deltawire
import numpy as np
import pytest
from deltawire.trace_writer import TraceWriter
from deltawire.traces import TracedGradient, TracedTensor

from lab.traces import figures

LARGE, SMALL = TracedTensor("large", (100, 200)), TracedTensor("small", (255,))


@pytest.fixture
def trace(tmp_path):
    random = np.random.default_rng(0)
    writer = TraceWriter(tmp_path / "made-up", [LARGE, SMALL], {})
    for number in (1, 2, 3):
        writer.add(
            number,
            [
                TracedGradient(
                    tensor,
                    random.laplace(0, 1e-3, tensor.shape).astype(np.float32),
                    significance=np.full(tensor.shape, 5.0 * number, np.float32),
                )
                for tensor in (LARGE, SMALL)
            ],
        )
    return deltawire.read_trace(tmp_path / "made-up")


def test_formulas_are_the_papers():
    assert figures.golomb_bits(0.01) == pytest.approx(8.108, abs=5e-4)  # b* = 6 in eq. 5
    assert figures.golomb_bits(0.5) == pytest.approx(2)
    assert figures.choices_bits(5, 2) == pytest.approx(math.log2(10))


def test_huffman_codes_are_the_best():
    assert figures.huffman_bits(collections.Counter("aaaabbcd")) == 4 * 1 + 2 * 2 + 2 * 3
    assert figures.huffman_bits(collections.Counter("abcdefgh")) == 8 * 3
    assert figures.huffman_bits(collections.Counter("a")) == 0


def test_exponents_cost_between_entropy_and_a_bit_more(trace):
    least, huffman = figures.exponent_bits(trace)
    assert 1 < least <= huffman < least + 1


def test_small_tensors_are_left_out(trace):
    found = list(figures.gradients(trace))
    assert [(step, each.tensor.name) for step, each in found] == [(n, "large") for n in (1, 2, 3)]


def test_heads_and_payload_are_the_file():
    values = np.random.default_rng(1).normal(size=(30, 40)).astype(np.float32)
    file = deltawire.encode(values, "int8")
    assert 8 * len(file) - figures.head_bits((30, 40), "int8") == 8 * 1200


def test_what_arrives_and_what_waits_is_what_came(trace):
    push = figures.Push("3lc:s=1.5")
    came = arrived = 0
    for _, gradient in figures.gradients(trace):
        came = came + gradient.values.astype(np.float64)
        arrived = arrived + push.send(gradient)[1].astype(np.float64)
    assert arrived.any()
    np.testing.assert_allclose(arrived + push._residuals["large"], came, atol=1e-8)


def test_figures_of_a_trace(trace):
    assert figures.bits_a_value(trace, "int8") == (8, 8)
    whole, late = figures.bits_a_value(trace, "3lc:s=1.9")
    push, bits = figures.Push("3lc:s=1.9"), []
    for _, gradient in figures.gradients(trace):
        bits.append(push.send(gradient)[0] / 20_000)
    assert whole == pytest.approx(sum(bits) / 3)
    assert late == pytest.approx(bits[-1])
    assert bits[0] != bits[-1]
    sent, golomb, choices, gaps = figures.position_bits(trace, 0.01)
    assert golomb == pytest.approx(figures.golomb_bits(0.01), rel=1e-3)
    assert choices < golomb < sent < 1.05 * golomb
    assert gaps == pytest.approx(choices, rel=0.1)
    assert figures.position_bits(trace, 0.001) is None  # 20 positions


def test_shares_of_gcomp(trace):
    shares = [figures.gcomp_share(trace, "gcomp", times) for times in (1, 10, 100)]
    assert shares == sorted(shares, reverse=True)
    assert shares[2] < shares[0] - 0.15  # 6 bits of 32
    lossless = figures.gcomp_share(trace, "gcomp:lossless=on")
    assert lossless == figures.gcomp_share(trace, "gcomp:lossless=on", 100)
    assert shares[0] < lossless < 1


def test_entropy_is_that_of_what_was_counted():
    counts = collections.Counter({"a": 500_000, "b": 250_000, "c": 250_000})
    assert figures.entropy_bits(counts) == pytest.approx(1.5, abs=1e-5)
    few = collections.Counter("ab")
    assert figures.entropy_bits(few) == pytest.approx(1 + 1 / (4 * math.log(2)))


def test_the_table_has_a_row_a_trace(trace, capsys):
    assert figures.main([str(trace.folder), str(trace.folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("| trace | 3lc 1.00 |")
    assert lines[2] == lines[3]
    assert lines[2].startswith("| made-up |")
    assert figures.main([str(trace.folder / "none")]) == 1
