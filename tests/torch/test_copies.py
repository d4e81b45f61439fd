"""Copies of a registered model: as with torch's own hooks they can be made, saved and trained
again; none shares a session with the original, and none exchanges plain gradients unasked."""

import copy
import pickle

import deltawire
import deltawire.torch
import pytest
import torch
from local_rounds import saved
from models import Net, backward, batch, fingerprint, steps_by, train_step, train_steps, wrapped
from ranks import results
from refusals import raised


def through_torch_save(model):
    return torch.load(saved(model), weights_only=False)


WAYS = {
    "deepcopy": copy.deepcopy,
    "save": through_torch_save,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "twice": lambda model: copy.deepcopy(through_torch_save(model)),
}


def duplicate(rank, world_size, report, way):
    model = wrapped(Net())
    hook = deltawire.torch.register(model, "3lc")
    train_steps(model, rank, range(2))
    twin = WAYS[way](model)
    assert fingerprint(twin) == fingerprint(model)
    with torch.no_grad():  # evaluation, as of an average of the weights
        assert torch.equal(twin(batch(rank, 2)[0]), model(batch(rank, 2)[0]))
    try:
        train_step(twin, rank, 2)
        raised = None
    except deltawire.DeltawireError as error:
        raised = error.code, str(error)
    again = deltawire.torch.register(twin, "fp32")
    for number in range(2, 4):  # both go on, each with a session of its own
        train_step(model, rank, number)
        train_step(twin, rank, number)
    left = len(twin._comm_hooks), len(twin._forward_hooks)
    again.close()
    train_step(model, rank, 4)  # the copy's end isn't the original's
    steps = hook.metrics()["steps"], again.metrics()["steps"]
    return raised, steps, left, fingerprint(model), fingerprint(twin), hook.last_error


@pytest.mark.parametrize("way", WAYS)
def test_a_copied_model_asks_to_be_registered_and_then_trains(way):
    first, second = results(duplicate, 2, way)
    assert first == second
    raised, steps, left, original, twin, error = first
    assert raised[0] == "State" and "register the copied model again" in raised[1]
    assert steps == (5, 2) and error is None
    assert left == (1, 1), "the copy's old hooks are still there"
    assert original != twin, "the copy trained through the original's codec"


def copy_the_hook(rank, world_size, report):
    model = wrapped(Net())
    hook = deltawire.torch.register(model, "3lc")
    train_step(model, rank, 0)
    texts = []
    for twin in (copy.copy(hook), copy.deepcopy(hook), pickle.loads(pickle.dumps(hook))):
        assert (twin.rank, twin.world_size, twin.spec) == (rank, 2, hook.spec)
        assert twin.closed and not hook.closed
        assert twin.metrics()["steps"] == 0 and twin.metrics()["traffic_bytes_sent"] == 0
        for use in (twin.state_dict, lambda twin=twin: twin.load_state_dict(hook.state_dict())):
            texts.append(str(raised(deltawire.DeltawireError, use)))
        other = wrapped(Net())  # a hook can be handed to DDP by hand
        other.register_comm_hook(None, twin.deltawire_hook)
        texts.append(str(raised(deltawire.DeltawireError, backward, other, rank, 0)))
        twin.interrupted()
        twin.close()
    train_step(model, rank, 1)
    return texts, hook.last_error


def test_a_copied_hook_owns_nothing():
    for texts, error in results(copy_the_hook, 2):
        assert error is None and len(texts) == 9
        assert all("register the copied model again" in text for text in texts)


def average(rank, world_size, report):
    """torch's averages of weights deep-copy the model."""
    model = wrapped(Net())
    deltawire.torch.register(model, "3lc")
    mean = torch.optim.swa_utils.AveragedModel(model)
    for number in range(3):
        train_step(model, rank, number)
        mean.update_parameters(model)
    with torch.no_grad():
        return mean(batch(0, 9)[0]).sum().item()


def test_averages_of_weights():
    first, second = results(average, 2)
    assert first == second


def copy_a_trainer(rank, world_size, report):
    network = Net()
    optimizer = torch.optim.SGD(network.parameters(), 0.05)
    trainer = deltawire.torch.LocalSteps(network, optimizer, steps=2, reducer="sbc:p=10%")
    texts = []
    for way in (copy.copy, copy.deepcopy, pickle.dumps):
        texts.append(str(raised(TypeError, way, trainer)))
    twin = copy.deepcopy(network)  # the module is the user's own
    steps_by(trainer, network, rank, range(2))
    return texts, trainer.round, fingerprint(twin) != fingerprint(network)


def test_a_trainer_says_that_it_cant_be_copied():
    for texts, rounds, apart in results(copy_a_trainer, 2):
        assert len(texts) == 3 and all("state_dict()" in text for text in texts)
        assert rounds == 1 and apart
