"""carrier="group": the process group moves messages, with the bytes and the bits that TCP gives."""

import deltawire.torch
import pytest
import torch
import torch.distributed as dist
from models import Net, train_step, train_steps, wrapped
from ranks import refusals_in_turn, results
from sharded import Uneven, cut, fingerprint, mesh_of, needs_fsdp2
from sharded import train_step as sharded_step

CARRIERS = ("tcp", "group")
SPECS = ("fp32", "3lc", "gather(sbc:p=1%)", "ring(fp32)", "gcomp")
SECRET = "correct horse battery staple"
STEPS = 3


class Carried:
    """Counts the bytes that this rank sends through process groups, while it is entered."""

    def __enter__(self):
        self.bytes, self._sends = 0, dist.isend

        def counted(tensor, *args):
            self.bytes += tensor.nbytes
            return self._sends(tensor, *args)

        dist.isend = counted
        return self

    def __exit__(self, *_):
        dist.isend = self._sends


def weights(model) -> bytes:
    return b"".join(each.detach().numpy().tobytes() for each in model.parameters())


def train(rank, world_size, report):
    """Of each spec and carrier: the weights, what was sent, and what the group has carried."""
    found = {}
    for spec in SPECS:
        for carrier in CARRIERS:
            model = wrapped(Net())
            groups = len(dist.distributed_c10d._world.pg_names)
            with Carried() as carried:
                hook = deltawire.torch.register(model, spec, carrier=carrier)
                train_steps(model, rank, range(STEPS))
                sent = sum(each["bytes_sent"] for each in hook.step_records)
                shown = hook.explain()
                hook.close()
            assert len(dist.distributed_c10d._world.pg_names) == groups, "groups are left"
            assert shown.carrier == shown.to_dict()["carrier"] == carrier
            assert ("carried by the process group" in str(shown)) == (carrier == "group")
            found[spec, carrier] = weights(model), sent, carried.bytes
    return found


@pytest.mark.parametrize("world_size", [2, 3])
def test_every_pattern_is_bit_equal_to_tcp(world_size):
    ranks = results(train, world_size)
    for found in ranks:
        for spec in SPECS:
            (by_tcp, sent, beside), (by_group, *counts) = (found[spec, each] for each in CARRIERS)
            assert by_tcp == by_group == ranks[0][spec, "group"][0], spec
            assert beside == 0 and counts[0] == sent <= counts[1], (spec, sent, counts)


def train_locally(rank, world_size, report):
    found = []
    for carrier in CARRIERS:
        torch.manual_seed(7)
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        with (
            Carried() as carried,
            deltawire.torch.LocalSteps(
                model, optimizer, "sbc:p=1%", steps=2, carrier=carrier
            ) as trainer,
        ):
            for step in range(2 * STEPS):
                train_step(model, rank, step, rate=0.0)
                trainer.step()
            assert trainer.explain().carrier == carrier
        found.append((weights(model), carried.bytes > 0))
    return found


def test_local_steps_are_bit_equal_to_tcp():
    for (by_tcp, beside), (by_group, carried) in results(train_locally, 2):
        assert by_tcp == by_group and carried and not beside


def train_shards(rank, world_size, report):
    found = []
    for carrier in CARRIERS:
        model = cut(Uneven(), mesh_of(2, 2))
        with Carried() as carried, deltawire.torch.register(model, "3lc", carrier=carrier) as hook:
            for step in range(STEPS):
                sharded_step(model, rank, step)
            assert hook.explain().carrier == carrier
        found.append((fingerprint(model), carried.bytes > 0))
    return found


@needs_fsdp2
def test_shards_are_bit_equal_to_tcp():
    """The groups of replicas are parts of the world."""
    for (by_tcp, beside), (by_group, carried) in results(train_shards, 4):
        assert by_tcp == by_group and carried and not beside


def refused(rank, world_size, report, settings):
    spec, options = settings[rank]
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(deltawire.DeltawireError) as caught:
        if spec == "ParameterServer":
            deltawire.torch.ParameterServer(model, optimizer, **options)
        elif spec == "LocalSteps":
            deltawire.torch.LocalSteps(model, optimizer, "sbc", steps=2, **options)
        else:
            deltawire.torch.register(wrapped(model), spec, **options)
    return type(caught.value).__name__, str(caught.value)


def test_what_is_refused():
    group = {"carrier": "group"}
    required = group | {"token": SECRET, "encryption": "required"}
    cases = {
        'carrier=\'nccl\' is unknown; use "tcp" or "group"': [("3lc", {"carrier": "nccl"})] * 2,
        "don't go together: the process group": [("3lc", required), ("3lc", required)],
        'encryption="required" don\'t': [("LocalSteps", required)] * 2,
        '"auto" takes no carrier=': [("auto", group)] * 2,
        "ParameterServer takes no carrier=": [("ParameterServer", group)] * 2,
        "carrier=group": [("3lc", group), ("3lc", {})],
    }
    for says, errors in zip(cases, refusals_in_turn(refused, list(cases.values())), strict=True):
        assert all(says in error[1] for error in errors), (says, errors)
