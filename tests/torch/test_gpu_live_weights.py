"""Weights on a GPU are published, and updated in place, through host memory."""

import gpu
import torch
from deltawire.torch import Publisher, Subscriber
from gpu import DEVICE

pytestmark = gpu.needs_gpu
TOKEN = "a token for the tests of weights"


def test_live_weights_on_a_gpu() -> None:
    trained, served = (
        torch.nn.Linear(300, 300).to(DEVICE, torch.bfloat16).requires_grad_(False) for _ in range(2)
    )
    with (
        Publisher(trained, "127.0.0.1:0", token=TOKEN) as publisher,
        Subscriber(served, publisher.address, token=TOKEN) as subscriber,
    ):
        place = served.weight.data_ptr()
        for number in range(3):
            publisher.publish()
            publisher.flush()
            assert subscriber.wait(number, 20) == subscriber.update() == number
            assert torch.equal(served.weight, trained.weight)
            assert served.weight.data_ptr() == place
            trained.weight[number::10] *= 1.01
