"""Updates write all tensors of a model or none, whatever kinds of tensors it has."""

import numpy as np
import pytest
import torch
from deltawire import DeltawireError, InvalidArgumentError, live, weight_store

TOKEN = "a token of the tests, long enough"


class Masked(torch.nn.Module):
    """With a buffer whose elements are one, and layers before and behind it in every order."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first = torch.nn.Linear(8, 8)
        self.register_buffer("mask", torch.ones(1).expand(8))
        self.zlast = torch.nn.Linear(8, 8)


def grown(model: torch.nn.Module) -> None:
    with torch.no_grad():
        for each in model.parameters():
            each.mul_(1.5)


def test_a_tensor_that_cannot_be_written_is_found_first(tmp_path) -> None:
    """Where it changes, nothing is written; where it does not, it is in nobody's way."""
    trained, served = Masked(), Masked()
    store = weight_store.Store(tmp_path)
    store.publish(trained, 1)
    grown(trained)
    store.publish(trained, 2)
    for start in (1, None):
        served = Masked()
        assert store.update(served, from_version=start) == 2
        assert torch.equal(served.zlast.weight, trained.zlast.weight)
    trained.mask = torch.full((8,), 2.0)
    grown(trained)
    store.publish(trained, 3)
    before = {name: each.clone() for name, each in served.state_dict().items()}
    for start in (2, None):
        with pytest.raises(InvalidArgumentError, match="'mask' can't be written.*share memory"):
            store.update(served, from_version=start)
        assert all(torch.equal(each, before[name]) for name, each in served.state_dict().items())


def test_so_it_is_for_a_subscriber() -> None:
    trained, served = Masked(), Masked()
    with live.Publisher(trained, "127.0.0.1:0", token=TOKEN) as publisher:
        publisher.publish(1)
        with live.Subscriber(served, publisher.address, token=TOKEN) as subscriber:
            subscriber.wait(version=1, timeout=60)
            subscriber.update()
            grown(trained)
            trained.mask = torch.full((8,), 2.0)
            publisher.publish(2)
            subscriber.wait(version=2, timeout=60)
            before = {name: each.clone() for name, each in served.state_dict().items()}
            with pytest.raises(InvalidArgumentError, match="'mask' can't be written"):
                subscriber.update()
            assert all(
                torch.equal(each, before[name]) for name, each in served.state_dict().items()
            )


def test_numpy_elements_that_share_memory(tmp_path) -> None:
    """NumPy would write one over the other without a word."""
    store = weight_store.Store(tmp_path)
    store.publish({"a": np.ones(4), "b": np.ones((3, 5))}, 1)
    store.publish({"a": np.zeros(4), "b": np.arange(15.0).reshape(3, 5)}, 2)
    memory = np.ones(5)
    served = {"a": np.ones(4), "b": np.lib.stride_tricks.as_strided(memory, (3, 5), (0, 8))}
    with pytest.raises(InvalidArgumentError, match="'b' can't be written.*share memory"):
        store.update(served, from_version=1)
    assert served["a"].tolist() == [1] * 4 and memory.tolist() == [1] * 5


@pytest.mark.parametrize("start", [1, None])
def test_inference_tensors(tmp_path, start) -> None:
    """Also those that are not contiguous, outside torch.inference_mode()."""
    store = weight_store.Store(tmp_path)
    old = {"a": torch.ones(4), "b": torch.arange(12.0).reshape(3, 4), "c": torch.ones(4)}
    store.publish(old, 1)
    new = {name: each + 1 for name, each in old.items()}
    store.publish(new, 2)
    with torch.inference_mode():
        served = {name: each.clone() for name, each in old.items()}
        served["b"] = served["b"].t().contiguous().t()
    assert store.update(served, from_version=start) == 2
    assert all(torch.equal(served[name], new[name]) for name in new)


def test_views_of_one_buffer(tmp_path) -> None:
    """Columns, and every second element, each in memory of its own; what overlaps is refused."""
    fused = torch.arange(96.0).reshape(8, 12)
    pairs = np.arange(40.0).reshape(4, 10)
    views = [fused.split(4, dim=1), fused.clone().split(4, dim=1)]
    model = dict(zip(("q", "k", "v"), views[0], strict=True))
    model |= {"gate": pairs[:, ::2], "up": pairs[:, 1::2], "back": np.arange(9.0)[::-1]}
    served = dict(zip(("q", "k", "v"), views[1], strict=True))
    copied = pairs.copy()
    served |= {"gate": copied[:, ::2], "up": copied[:, 1::2], "back": np.arange(9.0)[::-1]}
    store = weight_store.Store(tmp_path)
    store.publish(model, 1)
    fused.add_(1)
    pairs += 1
    store.publish(model, 2)
    assert store.update(served, from_version=1) == 2
    for name, each in model.items():
        assert np.array_equal(np.asarray(served[name]), np.asarray(each)), name
    for overlapping in (
        {"all": fused, "k": fused[:, 4:8]},
        {"q": fused[:, :5], "k": fused[:, 4:8], "v": fused[:, 8:]},
        {"even": pairs[:, ::2], "third": pairs[:, ::3]},
    ):
        with pytest.raises(InvalidArgumentError, match="share memory without being the same"):
            store.publish(overlapping, 3)


def test_names_without_wrappers(tmp_path) -> None:
    """What a wrapped module publishes, a bare one takes, and the other way around."""
    bare = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    parallel = torch.nn.DataParallel(torch.nn.Sequential(*bare))
    within = torch.nn.Sequential(torch.compile(bare[0]), bare[1])
    store = weight_store.Store(tmp_path)
    models = [bare, torch.compile(bare), parallel, torch.compile(parallel), within]
    models.append(torch.compile(bare).state_dict())
    for number, model in enumerate(models):
        with torch.no_grad():
            bare[0].weight.add_(1)
        store.publish(model, number)
        assert list(store.load()) == ["0.bias", "0.weight", "1.bias", "1.weight"]
        served = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
        served.load_state_dict(store.load(0))
        assert store.update(torch.compile(served), from_version=0) == number
        assert torch.equal(served[0].weight, bare[0].weight)
    with pytest.raises(DeltawireError, match="'module.*without 'module.'.*pass the module in"):
        store.update(parallel.state_dict())


class Extra(torch.nn.Linear):
    def get_extra_state(self) -> dict:
        return {"scale": 1}

    def set_extra_state(self, state: dict) -> None:
        pass


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (torch.nn.Linear(4, 4, device="meta"), "'bias' is on the device meta.*to_empty"),
        (Extra(4, 4), r"'_extra_state' is what .*get_extra_state\(\).*pass a dict of the rest"),
        ({"epoch": 3, "model": {"a": torch.ones(3)}}, r"'model' is a dict.*\['model'\]"),
        ({"a": torch.eye(3).to_sparse()}, r"'a' is sparse \(torch.sparse_coo\).*to_dense"),
    ],
)
def test_models_that_hold_something_else(tmp_path, model, said: str) -> None:
    """Each is refused with what to pass."""
    store = weight_store.Store(tmp_path)
    with pytest.raises(DeltawireError, match=said):
        store.publish(model, 1)
    with pytest.raises(DeltawireError, match=said):
        live.Publisher(model, "127.0.0.1:0", token=TOKEN)
    store.publish({"a": torch.ones(3)}, 1)
    with pytest.raises(DeltawireError, match=said):
        store.update(model)
