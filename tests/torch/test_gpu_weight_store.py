"""Weights on a GPU are published and updated in place, through host memory."""

import gpu
import torch
from deltawire import weight_store
from gpu import DEVICE

pytestmark = gpu.needs_gpu


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
