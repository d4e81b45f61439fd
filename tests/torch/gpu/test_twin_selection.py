"""What topk and sbc choose doesn't depend on the sample that the threshold is looked for with."""

import numpy as np
import pytest
from test_twin_bytes import check_equal

SPECS = ["topk:k=0.03,values=int8", "sbc:p=0.03"]


@pytest.fixture
def small_sample(device, monkeypatch):
    """A sample of 64 elements."""
    from deltawire.torch.gpu.kernels import selection

    monkeypatch.setattr(selection, "SAMPLE", 64)
    return selection


def normal(count):
    return np.random.default_rng(count).standard_normal(count).astype(np.float32)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("count", [65, 2500])
def test_elements_beyond_the_sample(device, small_sample, spec, count):
    check_equal(device, spec, normal(count))


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("after", [False, True])
def test_a_sample_that_misleads(device, small_sample, monkeypatch, spec, after):
    monkeypatch.setattr(small_sample, "sample_rank", lambda n, k: 1)
    check_equal(device, spec, normal(2500), after=after)


@pytest.mark.parametrize("spec", SPECS)
def test_fewer_values_than_are_to_be_chosen(device, small_sample, spec):
    values = np.zeros(2500, np.float32)
    values[::500] = [1, -2, 3, 4, -5]
    check_equal(device, spec, values)


def test_one_side_alone_was_missed(device, small_sample, monkeypatch):
    monkeypatch.setattr(small_sample, "sample_rank", lambda n, k: 8)
    values = np.abs(normal(2500))
    values[::100] *= -1
    check_equal(device, "sbc:p=0.03", values)


def test_equal_means_send_the_positive_side(device):
    values = np.repeat(np.float32([1, -1, 0.5, -0.5]), 100)
    check_equal(device, "sbc:p=0.3", values)


@pytest.mark.parametrize("gap", [23, 24])
def test_a_gap_of_as_many_ones_as_a_code_has(device, gap):
    # Where there are two positions far apart among many, b is small and the gap has many ones.
    values = np.zeros(700, np.float32)
    values[:300] = 1
    values[300 + gap] = values[305 + gap] = 1
    check_equal(device, "topk:k=0.99", values)


@pytest.mark.parametrize("spec", ["topk:k=0.9", "sbc:p=0.45"])
@pytest.mark.parametrize("count", [600, 5000])
def test_chunks_of_as_many_lanes_as_their_positions_ask_for(device, spec, count):
    check_equal(device, spec, normal(count), steps=1)
