"""Weights on a GPU are published, and updated in place, through host memory."""

import gpu
import torch
from deltawire import weight_store
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


def test_weights_on_a_gpu(tmp_path) -> None:
    torch.manual_seed(0)
    trained = torch.nn.Sequential(torch.nn.Linear(300, 300), torch.nn.Linear(300, 7))
    trained = trained.to(DEVICE, torch.bfloat16)
    served = torch.nn.Sequential(torch.nn.Linear(300, 300), torch.nn.Linear(300, 7))
    served = served.to(DEVICE, torch.bfloat16)
    with weight_store.Store(tmp_path) as store:
        store.publish(trained, 1)
        served.load_state_dict(store.load())
        places = [each.data_ptr() for each in served.parameters()]
        with torch.no_grad():
            trained[0].weight[::9] *= 1.01
        store.publish(trained, 2)
        assert store.update(served, from_version=1) == 2
        assert [each.data_ptr() for each in served.parameters()] == places
        assert all(map(torch.equal, served.parameters(), trained.parameters()))
        assert store.update(served, to_version=1) == 1
