"""The networks and the order of images."""

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from lab.data.batches import Batches, epoch_order  # noqa: E402
from lab.data.idx import load_image_set  # noqa: E402
from lab.demo.settings import Settings  # noqa: E402
from lab.demo.workloads import WORKLOADS  # noqa: E402


def test_networks_have_as_many_parameters_as_their_papers():
    for name, count in (("lenet5", 431_080), ("resnet20", 269_722)):
        network = WORKLOADS[name].make_network(1)
        assert sum(parameter.numel() for parameter in network.parameters()) == count
        assert WORKLOADS[name].parameters == count


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)
def test_a_seed_gives_the_same_network_whatever_ran_before(workload):
    first = workload.make_network(5)
    torch.rand(1000)
    for one, other in zip(first.parameters(), workload.make_network(5).parameters(), strict=True):
        assert torch.equal(one, other)
    one, other = (next(network.parameters()) for network in (first, workload.make_network(6)))
    assert not torch.equal(one, other)


def test_an_epoch_is_a_permutation_of_its_own():
    order = epoch_order(1, 0, 1000)
    assert sorted(order) == list(range(1000))
    np.testing.assert_array_equal(order, epoch_order(1, 0, 1000))
    assert not np.array_equal(order, epoch_order(1, 1, 1000))
    assert not np.array_equal(order, epoch_order(2, 0, 1000))


def test_ranks_share_an_epoch_without_overlap(image_folder: Path):
    images = load_image_set(image_folder)
    ranks = [Batches(images, seed=3, batch=8, place=(rank, 4)) for rank in range(4)]
    assert ranks[0].steps_per_epoch == 3  # 96 images / (4 ranks x 8)
    seen = [
        pixels.numpy().tobytes()
        for step in range(3)
        for batches in ranks
        for pixels in batches.at(step)[0]
    ]
    assert len(seen) == len(set(seen)) == 96
    again, _ = ranks[1].at(1)
    ranks[1].at(7)
    assert torch.equal(again, ranks[1].at(1)[0])  # no state: any step at any time


def test_a_step_larger_than_the_training_set_is_refused(image_folder: Path):
    with pytest.raises(ValueError, match="a step takes 100 images"):
        Batches(load_image_set(image_folder), seed=3, batch=25, place=(0, 4))


def test_points_are_few_and_include_the_last_step():
    for steps in (1, 6, 7, 220, 1000):
        settings = Settings(
            "lenet5", 2, steps, 4, 1, 1, 0.06, 0.9, False, 1.0, "none", None, False, "", 10.0
        )
        points = [step for step in range(1, steps + 1) if settings.is_point(step - 1, step)]
        assert points[-1] == steps
        assert len(points) <= 9
