"""What all ranks must have alike: one record at every door, and an error that says what differs."""

import functools

import deltawire
import deltawire.torch
import pytest
import torch
from deltawire.session import terms
from deltawire.session.terms import Terms, tensor_line
from models import Net, train_step, wrapped
from ranks import attempted, results
from sharded import IS_SUPPORTED, Uneven, cut, mesh_of, needs_fsdp2
from torch.nn.parallel import DistributedDataParallel


def refused(*records, whole_of=None):
    """(text, suspect) of the records' difference; None where they are alike."""
    try:
        terms.check([record.text for record in records], whole_of)
    except deltawire.DeltawireError as error:
        assert error.code == "Mismatch" and "\n" not in str(error)
        return str(error), error.suspect
    return None


def record(door="register", tensors=(), **settings):
    return Terms(door, tensors, **{"spec": "direct(3lc)", "min_elements": 256} | settings)


def test_the_few_are_named_with_what_they_have():
    usual, other = record(), record(min_elements=7)
    assert refused(usual, record(), usual) is None
    said = "has min_elements=7, ranks 0, 1 and 3 have min_elements=256; pass the same arguments"
    text, suspect = refused(usual, usual, other, usual)
    assert f"rank 2 {said} on every rank" == text and suspect == 2
    text, suspect = refused(other, usual, usual)  # rank 0 may be the odd one
    assert text.startswith("rank 0 has min_elements=7, ranks 1 and 2 have") and suspect == 0
    assert refused(usual, other)[1] == 1  # of as many the one that isn't with rank 0
    text, _ = refused(record(min_elements=1), record(min_elements=2), *[usual] * 12)
    assert "rank 1 has min_elements=2, rank 0 has min_elements=1, ranks 2, 3, 4" in text
    assert "9 and 4 more have min_elements=256" in text


def test_each_setting_that_differs_is_named():
    text, _ = refused(record(revert="fold"), record(revert="exact", min_elements=8))
    for words in ("rank 1 has min_elements=8", "rank 1 has revert=exact, rank 0 has revert=fold"):
        assert words in text
    assert "spec" not in text
    assert "rank 1 has more=(none)" in refused(record(more=1), record())[0]


def test_ranks_at_different_doors_hear_of_these_alone():
    text, _ = refused(record(), record("LocalSteps", min_elements=9))
    assert text == (
        "rank 1 has door=LocalSteps, rank 0 has door=register; call the same on every rank"
    )


def test_long_values_and_models_fit_and_are_told_whole_where_ranks_can_ask():
    rules = ", ".join(f"layers.{i}.*: topk:k={i}%" for i in range(1, 80))
    lines = [tensor_line(f"layers.{i}.weight", "float32", (i, 3)) for i in range(1000)]
    first = record(spec=rules, tensors=lines)
    assert len(first.text.encode()) <= terms.TEXT_BYTES
    assert refused(first, record(spec=rules, tensors=lines)) is None

    second = record(spec=rules.replace("k=70%", "k=71%"), tensors=lines)
    whole_of = lambda rank, name: (first, second)[rank].whole(name)  # noqa: E731
    text, _ = refused(first, second, whole_of=whole_of)
    assert "layers.70.*: topk:k=71%" in text and "layers.70.*: topk:k=70%" in text
    assert len(text) < 600 and "model" not in text
    assert refused(first, second)[0].count("layers.1.*") == 2, "their beginnings, and digests"

    second = record(spec=rules, tensors=[*lines[:500], "'odd' float32 (3,)", *lines[501:]])
    text, _ = refused(first, second, whole_of=whole_of)
    assert "tensor 500 of rank 1 is 'odd' float32 (3,), and of rank 0 is 'layers.500.wei" in text
    second = record(spec=rules, tensors=lines[:-1])
    text, _ = refused(first, second, whole_of=whole_of)
    assert "tensor 999 of rank 1 is missing, and of rank 0 is 'layers.999.weight'" in text
    assert "make the same model on every rank" in text


def local_steps(net, **options):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    return deltawire.torch.LocalSteps(net, optimizer, "3lc", steps=2, **options)


def parameter_server(net, **options):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    return deltawire.torch.ParameterServer(net, optimizer, **options)


def register(spec, net, **options):
    return deltawire.torch.register(wrapped(net), spec, **options)


def register_cut(net, **options):
    return deltawire.torch.register(cut(Uneven(), mesh_of(2, 1)), "3lc", **options)


# How a rank comes in; the setting that differs, on rank 0 and on rank 1.
DOORS = {
    "register": (functools.partial(register, "3lc"), "revert", ("fold", "exact")),
    "auto": (functools.partial(register, "auto"), "tier", ("lossless", "lossy")),
    "fully_shard": (register_cut, "revert", ("fold", "exact")),
    "LocalSteps": (local_steps, "bucket_bytes", (1000, 2000)),
    "ParameterServer": (parameter_server, "staleness", (0, 1)),
}
if not IS_SUPPORTED:
    del DOORS["fully_shard"]


def come_in_otherwise(rank, world_size, report):
    seen = {}
    for door, (come_in, name, values) in DOORS.items():
        seen[door] = attempted(lambda c=come_in, n=name, v=values: c(Net(), **{n: v[rank]}))
    trainer = local_steps(Net())
    seen["Averager"] = attempted(lambda: deltawire.torch.Averager(trainer, warmup_steps=3 + rank))
    seen["Averager, refused"] = attempted(
        lambda: deltawire.torch.Averager(trainer, warmup_steps=-rank)
    )
    deltawire.torch.Averager(trainer, warmup_steps=3)
    trainer.close()
    return seen


def test_every_door_compares_what_must_be_alike():
    first, second = results(come_in_otherwise, 2)
    expected = {door: (name, *values) for door, (_, name, values) in DOORS.items()}
    for door, (name, *values) in (expected | {"Averager": ("warmup_steps", 3, 4)}).items():
        assert first[door] == second[door], f"{door}: the ranks disagree about what is wrong"
        kind, text, suspect = first[door]
        assert kind == "DeltawireError" and suspect == 1
        assert f"rank 1 has {name}={values[1]}, rank 0 has {name}={values[0]}; pass" in text
    for _, text, _ in (first["Averager, refused"], second["Averager, refused"]):
        assert "warmup_steps=-1" in text


@pytest.mark.parametrize("come_in", [local_steps, parameter_server])
def test_a_door_asks_for_a_process_group(come_in):
    with pytest.raises(ValueError, match="init_process_group"):
        come_in(Net())


class Other(Net):
    """With other parameters on rank 1."""

    def __init__(self, rank, how):
        super().__init__()
        if rank == 1:
            how(self)


def widen(net):
    net.layers[5][0] = torch.nn.Linear(64, 65)


def freeze(net):
    net.layers[0][0].weight.requires_grad_(False)


def rename(net):
    net.blocks = net.layers
    del net.layers
    net.layers = lambda x: x


def halve(net):
    net.layers[2].bfloat16()


MODELS = {
    widen: "tensor 10 of rank 1 is 'layers.5.0.weight' float32 (65, 64), and of rank 0 is 'layers."
    "5.0.weight' float32 (64, 64)",
    freeze: "tensor 0 of rank 1 is 'layers.0.0.bias' float32 (64,), and of rank 0 is 'layers.0.0.w",
    rename: "tensor 0 of rank 1 is 'blocks.0.0.weight' float32 (64, 64), and of rank 0 is 'layers.",
    halve: "tensor 4 of rank 1 is 'layers.2.0.weight' bfloat16 (64, 64), and of rank 0 is 'layers.",
}


def differ(rank, world_size, report):
    seen = {}
    for how in MODELS:
        ddp = DistributedDataParallel(Other(rank, how), init_sync=False)
        seen[how.__name__] = attempted(lambda d=ddp: deltawire.torch.register(d, "fp32"))
    for door in (local_steps, parameter_server):
        seen[door.__name__] = attempted(lambda d=door: d(Other(rank, widen)))
    rules = ", ".join(f"layers.{i}.*: topk:k={i}%" for i in range(1, 80)) + ", rest topk"
    assert len(rules) > terms.TEXT_BYTES
    other = rules.replace("k=70%", "k=71%") if rank == 1 else rules
    seen["rules"] = attempted(lambda: deltawire.torch.register(wrapped(Net()), other))
    model = wrapped(Net())
    hook = deltawire.torch.register(model, rules)  # of any length
    train_step(model, rank, 0)
    hook.close()
    return seen


@pytest.mark.skipif(
    "init_sync" not in DistributedDataParallel.__init__.__code__.co_varnames,
    reason="this DDP compares models itself",
)
def test_models_that_differ_are_told_when_they_are_registered():
    first, second = results(differ, 2)
    assert first == second, "the ranks disagree about what is wrong"
    for how, says in MODELS.items():
        kind, text, suspect = first[how.__name__]
        assert kind == "DeltawireError" and suspect == 1 and says in text, text
        assert "make the same model on every rank" in text
    for door in ("local_steps", "parameter_server"):
        assert (
            "tensor 10 of rank 1 is 'layers.5.0.weight' float32 (65, 64) trained"
            in (first[door][1])
        )
    assert "layers.70.*: topk:k=0.71" in first["rules"][1], first["rules"]


def differ_sharded(rank, world_size, report):
    module = Uneven()
    if rank == 1:
        module.odd.register_parameter("other", torch.nn.Parameter(torch.zeros(2)))
    model = cut(module, mesh_of(2, 1))
    return attempted(lambda: deltawire.torch.register(model, "fp32"))


@needs_fsdp2
def test_sharded_models_that_differ_are_told_when_they_are_registered():
    first, second = results(differ_sharded, 2)
    assert first == second and first[2] == 1
    assert "of rank 1 is 'odd.other' float32 (2,) in module 'odd', and of rank 0 is" in first[1]
