"""Fragments of a model: how it is cut, and that each is what LocalSteps of its own would be."""

import deltawire
import deltawire.torch
import pytest
import torch
from deltawire.torch.local.weights import fragments_of
from models import Net, backward, fingerprint
from ranks import attempted, results

STEPS = 4


def cut(sizes, count):
    """Sizes by layer; of each fragment the layers."""
    names = [f"{layer}.{i}" for layer, own in enumerate(sizes) for i in range(len(own))]
    flat = [size for own in sizes for size in own]
    slices = fragments_of(names, flat, count)
    assert [s.start for s in slices[1:]] == [s.stop for s in slices[:-1]]
    assert slices[0].start == 0 and slices[-1].stop == len(flat)
    return [sorted({int(name[0]) for name in names[part]}) for part in slices]


@pytest.mark.parametrize(
    ("sizes", "count", "layers"),
    [
        ([[8, 2]] * 6, 1, [[0, 1, 2, 3, 4, 5]]),
        ([[8, 2]] * 6, 3, [[0, 1], [2, 3], [4, 5]]),
        ([[8, 2]] * 6, 6, [[0], [1], [2], [3], [4], [5]]),
        ([[900, 9], [3], [4], [5]], 3, [[0], [1], [2, 3]]),
        ([[3], [4], [5], [900]], 3, [[0, 1], [2], [3]]),
        ([[1], [1], [1], [900]], 2, [[0, 1, 2], [3]]),
        ([[3], [4], [5], [4], [3]], 2, [[0, 1], [2, 3, 4]]),
    ],
)
def test_fragments_are_whole_layers_of_about_the_same_bytes(sizes, count, layers):
    assert cut(sizes, count) == layers


class Part(torch.nn.Module):
    """Layers of a network under their names in it."""

    def __init__(self, net, numbers):
        super().__init__()
        self.layers = torch.nn.ModuleDict({str(i): net.layers[i] for i in numbers})


def inner_of(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def trainers_of_parts(net, options):
    """LocalSteps for each third of the network, whose first rounds end after 2, 3 and 4 steps."""
    trainers = []
    for number, first in enumerate((2, 3, STEPS)):
        part = Part(net, range(2 * number, 2 * number + 2))
        trainers.append(
            deltawire.torch.LocalSteps(
                part,
                inner_of(part),
                steps=lambda round_, first=first: STEPS if round_ else first,
                **options,
            )
        )
    return trainers


def beside_trainers_of_parts(rank, world_size, report):
    options = {"reducer": "3lc", "outer": "nesterov"}
    model, twin = Net(), Net()
    trainer = deltawire.torch.LocalSteps(
        model, inner_of(model), steps=STEPS, fragments=3, **options
    )
    parts = trainers_of_parts(twin, options)
    for step in range(2 * STEPS + 2):
        for net, theirs in ((model, [trainer]), (twin, parts)):
            backward(net, rank, step)
            for each in theirs:
                each.step()
        assert fingerprint(model) == fingerprint(twin), f"step {step}"
    sent = [record["bytes_sent"] for record in trainer.step_records]
    theirs = [[record["bytes_sent"] for record in part.step_records] for part in parts]
    for each in (trainer, *parts):
        each.exchange()
    assert fingerprint(model) == fingerprint(twin)
    for each in (trainer, *parts):
        each.close()
    return sent, theirs, fingerprint(model)


def test_each_fragment_is_what_local_steps_of_its_own_would_be():
    values = results(beside_trainers_of_parts, 2)
    assert values[0][2] == values[1][2]
    for sent, theirs, _ in values:
        assert len(sent) == 7 and len(theirs[0]) == 3
        assert sent == [theirs[i % 3][i // 3] for i in range(7)]


def whole_and_in_thirds(rank, world_size, report):
    """Bytes of each exchange; and rounds of fewer steps than fragments."""
    seen = {}
    for fragments in (1, 3):
        model = Net()
        trainer = deltawire.torch.LocalSteps(
            model, inner_of(model), "fp32", steps=lambda _: 2, fragments=fragments
        )
        prints = []
        for step in range(5):
            backward(model, rank, step)
            trainer.step()
            prints.append((trainer.round, trainer.local_steps, len(trainer.step_records)))
        trainer.exchange()
        prints.append((trainer.round, trainer.local_steps, fingerprint(model)))
        seen[fragments] = prints, [record["raw_bytes"] for record in trainer.step_records]
        trainer.close()
    model = Net()
    too_many = [
        attempted(
            lambda count=count: deltawire.torch.LocalSteps(
                model, inner_of(model), "fp32", steps=1, fragments=count
            )
        )
        for count in (7, 0)
    ]
    return seen, too_many


def test_an_exchange_has_a_fragments_bytes():
    values = results(whole_and_in_thirds, 2)
    for seen, too_many in values:
        (_, whole), (places, thirds) = seen[1], seen[3]
        assert max(thirds) == max(whole) / 3 and len(thirds) == 9 and len(whole) == 3
        assert [place[:2] for place in places] == [(0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (3, 0)]
        # Of two steps the first has one fragment's turn, the second those of the two others.
        assert [place[2] for place in places[:-1]] == [1, 3, 4, 6, 7]
        assert "6 layers" in too_many[0][1] and "fragments=0" in too_many[1][1]
    assert values[0][0][3][0][-1] == values[1][0][3][0][-1]
