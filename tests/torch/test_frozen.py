"""Parameters that are frozen, thawed or replaced: what DDP exchanges is fixed when it is made. Each
case is a step that works or an error on every rank that names the parameter, and never a KeyError
or replicas that differ."""

import deltawire.torch
import pytest
import torch
from models import WIDTH, Net, batch, descend, fingerprint, wrapped
from ranks import results
from torch.nn.parallel import DistributedDataParallel

FIRST, LAST = "layers.0.0.weight", "layers.5.0.weight"


def freeze(module, name, frozen=True):
    module.get_parameter(name).requires_grad_(not frozen)


def step(model, rank, number):
    """One step of SGD; what it raised, or None."""
    x, y = batch(rank, number)
    model.zero_grad()
    try:
        (model(x) - y).square().mean().backward()
    except Exception as error:
        return type(error).__name__, str(error), getattr(error, "code", None)
    descend(model)
    return None


def train(rank, world_size, report, before, between, after, options):
    """`before` and `between` list what is frozen before DDP is made and before register; `after`
    maps a step's number to what is frozen (True) or thawed (False) before it."""
    module = Net()
    for name in before:
        freeze(module, name)
    model = wrapped(module, **options)
    for name in between:
        freeze(module, name)
    hook = deltawire.torch.register(model, "3lc", timeout=20)
    raised = None
    for number in range(4):
        for name, frozen in after.get(number, {}).items():
            freeze(module, name, frozen)
        raised = step(model, rank, number)
        if raised:
            break
    error = hook.last_error
    state = fingerprint(model)
    hook.close()
    return raised, error and str(error), state, hook.metrics()["steps"]


UNUSED = {"find_unused_parameters": True}
STATIC = {"static_graph": True}
ALL = [name for name, _ in Net().named_parameters()]

WORKS = {
    "frozen before DDP": ([FIRST], [], {}, {}),
    "frozen before register": ([], [FIRST], {}, UNUSED),
    "frozen before register, static": ([], [FIRST], {}, STATIC),
    "frozen before register, thawed after": ([], [FIRST], {0: {FIRST: False}}, {}),
    "frozen before register, thawed later": ([], [FIRST], {2: {FIRST: False}}, UNUSED),
    "frozen after register": ([], [], {2: {LAST: True}}, UNUSED),
    "frozen and thawed": ([], [], {1: {LAST: True}, 3: {LAST: False}}, UNUSED),
    "all frozen when registered": ([], ALL, {0: dict.fromkeys(ALL, False)}, {}),
}


@pytest.mark.parametrize("case", WORKS)
def test_what_ddp_exchanges_goes_on(case):
    first, second = results(train, 2, *WORKS[case])
    for raised, error, _, steps in (first, second):
        assert raised is None and error is None
        assert steps == 4
    assert first[2] == second[2], "the replicas differ"


FAILS = {
    "thawed after DDP": ([LAST], [], {0: {LAST: False}}, UNUSED, 0, "doesn't exchange it"),
    "thawed after register": ([LAST], [], {2: {LAST: False}}, {}, 2, "doesn't exchange it"),
    "thawed, static": ([FIRST], [], {2: {FIRST: False}}, STATIC, 2, "doesn't exchange it"),
    "frozen before register": ([], [FIRST], {}, {}, 0, "find_unused_parameters=True"),
    "frozen after register": ([], [], {2: {LAST: True}}, {}, 2, "find_unused_parameters=True"),
    "frozen, static": ([], [], {2: {LAST: True}}, STATIC, 2, "is frozen, and was not in the first"),
    "thawed within DDP, static": ([], [LAST], {2: {LAST: False}}, STATIC, 2, "and did not in the"),
}


@pytest.mark.parametrize("case", FAILS)
def test_what_ddp_does_not_exchange_is_named_before_anything_differs(case):
    *arguments, steps, says = FAILS[case]
    name = FIRST if FIRST in arguments[0] + arguments[1] else LAST
    ranks = results(train, 2, *arguments)
    for raised, error, _, finished in ranks:
        kind, text, _ = raised
        # A rank that still finishes the step before hears it from the other.
        assert kind == "DeltawireError"
        for line in (text, error):
            assert f"'{name}'" in line and says in line
            assert "wrap the module in a new DistributedDataParallel" in line
        assert finished in (steps, steps - 1)
    assert "State" in [raised[2] for raised, *_ in ranks]
    assert ranks[0][2] == ranks[1][2], "the step that failed changed a replica"


def thaw_on_one(rank, world_size, report):
    module = Net()
    freeze(module, LAST)
    model = wrapped(module)
    hook = deltawire.torch.register(model, "fp32", timeout=60)
    assert step(model, rank, 0) is None
    if rank == 1:
        freeze(module, LAST, frozen=False)
    kind, text, code = step(model, rank, 1)
    return kind, text, code, hook.last_error.suspect


def test_a_parameter_that_one_rank_thaws_is_named_by_all():
    first, second = results(thaw_on_one, 2)
    assert second[0] == "DeltawireError" and second[2] == "State"
    assert first[0] == "DeltawireError" and first[3] == 1
    for _, text, *_ in (first, second):
        assert f"'{LAST}'" in text and "doesn't exchange it" in text


def replace(rank, world_size, report):
    """load_state_dict(assign=True) puts other tensors where DDP's were."""
    outcomes = []
    for registered in (True, False):
        model = wrapped(Net())
        if registered:
            deltawire.torch.register(model, "fp32")
            assert step(model, rank, 0) is None
        state = {name: value.clone() for name, value in model.module.state_dict().items()}
        model.module.load_state_dict(state, assign=True)
        if registered:
            outcomes.append(step(model, rank, 1))
        else:
            with pytest.raises(ValueError) as caught:
                deltawire.torch.register(model, "fp32")
            outcomes.append((type(caught.value).__name__, str(caught.value), caught.value.code))
    return outcomes


def test_parameters_that_were_replaced_are_noticed():
    for after, before in results(replace, 2):
        assert f"'{FIRST}'" in after[1] and "another tensor" in after[1]
        assert before[2] == "InvalidArgument" and "was replaced" in before[1]
        assert all("new DistributedDataParallel" in text for _, text, _ in (after, before))


def new_layer(module):
    torch.manual_seed(3)
    module.layers[5][0] = torch.nn.Linear(WIDTH, WIDTH)


def adapter(module):
    module.layers[5] = torch.nn.Sequential(*module.layers[5], torch.nn.Linear(WIDTH, WIDTH))


def new_parameter(module):
    module.register_parameter("unused", torch.nn.Parameter(torch.zeros(2)))


def double(module):
    module.double()


# What becomes of a registered model: (how, the parameter that is named, what is said of it).
CHANGES = [
    (new_layer, LAST, "another tensor"),
    (adapter, "layers.5.2.weight", "doesn't exchange it"),
    (new_parameter, "unused", "doesn't exchange it"),
    (double, FIRST, "is torch.float64, but was torch.float32"),
]


def change(rank, world_size, report):
    seen = []
    for how, *_ in CHANGES:
        for spec, options in (("3lc", {}), ("fp32", UNUSED), ("auto", UNUSED)):
            model = wrapped(Net(), **options)
            hook = deltawire.torch.register(model, spec, timeout=20)
            assert step(model, rank, 0) is None
            how(model.module)
            before = fingerprint(model)
            x = batch(rank, 1)[0].to(next(model.parameters()).dtype)
            with pytest.raises(deltawire.DeltawireError) as caught:
                model(x).square().mean().backward()
            with torch.no_grad():
                model(x)  # is nobody's concern
            assert fingerprint(model) == before and hook.last_error is caught.value
            seen.append((caught.value.code, str(caught.value), before))
            hook.close()
    return seen


def test_a_model_that_has_changed_since_is_noticed_before_replicas_differ():
    first, second = results(change, 2)
    assert first == second, "the replicas differ"
    said = iter(first)
    for _, name, says in CHANGES:
        for code, text, _ in (next(said), next(said), next(said)):
            assert code == "State" and f"parameter '{name}'" in text and says in text
            assert "wrap the module in a new DistributedDataParallel and register that" in text


def replace_what_is_not_trained(rank, world_size, report):
    """Other modules may come and go."""
    model = wrapped(Net())
    hook = deltawire.torch.register(model, "fp32")
    outcomes = [step(model, rank, 0)]
    model.module.layers[5][1] = torch.nn.ReLU()
    model.module.frozen = torch.nn.Linear(2, 2).requires_grad_(False)
    outcomes.append(step(model, rank, 1))
    model.module = Net()
    outcomes.append(step(model, rank, 2))
    hook.close()
    return outcomes


def test_other_modules_may_be_replaced():
    first, second = results(replace_what_is_not_trained, 2)
    assert first == second and first[:2] == [None, None]
    assert "has another module now" in first[2][1]


def without_gradients(rank, world_size, report):
    """What exchanges nothing asks for nothing: evaluation, accumulation, a frozen critic."""
    module = Net()
    freeze(module, FIRST)
    model = wrapped(module)
    hook = deltawire.torch.register(model, "fp32")
    assert step(model, rank, 0) is None
    freeze(module, FIRST, frozen=False)
    with torch.no_grad():
        model(batch(rank, 1)[0])
    with model.no_sync():
        model(batch(rank, 1)[0]).sum().backward()
    for name in ALL:
        freeze(module, name)
    x = batch(rank, 1)[0].requires_grad_()
    model(x).sum().backward()
    assert x.grad is not None
    for name in ALL:
        freeze(module, name, frozen=name == FIRST)
    assert step(model, rank, 1) is None
    hook.close()
    freeze(module, FIRST, frozen=False)
    model(batch(rank, 2)[0])  # a closed hook minds nothing
    return hook.metrics()["steps"], fingerprint(model), hook.last_error


def test_forward_passes_that_exchange_nothing_are_left_alone():
    first, second = results(without_gradients, 2)
    assert first == second and first[0] == 2


def ignore(rank, world_size, report):
    """Parameters that DDP was told to ignore are nobody's concern."""
    module = Net()
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, [LAST])
    model = wrapped(module)
    hook = deltawire.torch.register(model, "fp32")
    outcomes = [step(model, rank, number) for number in range(2)]
    module.get_parameter(LAST).data.zero_()
    return outcomes, hook.metrics()["elements"], fingerprint(model)


def test_ignored_parameters_are_left_out():
    elements = sum(p.numel() for name, p in Net().named_parameters() if name != LAST)
    first, second = results(ignore, 2)
    assert first == second
    assert first[:2] == ([None, None], elements)


class Moved(torch.nn.Linear):
    """A layer whose weight has another name by now, as parametrizations give it."""

    weight = property(lambda self: self.original)


def move(rank, world_size, report):
    model = wrapped(Net())
    hook = deltawire.torch.register(model, "fp32")
    layer = model.module.layers[0][0]
    layer.register_parameter("original", layer._parameters.pop("weight"))
    layer.__class__ = Moved
    outcomes = [step(model, rank, number) for number in range(2)]
    return outcomes, hook.last_error, fingerprint(model)


def test_a_parameter_that_has_moved_is_still_exchanged():
    first, second = results(move, 2)
    assert first == second
    assert first[:2] == ([None, None], None)
