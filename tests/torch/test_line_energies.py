"""Mean squares of gradients' lines beside 3lc's gradients, and the Adam that they are for."""

import contextlib
import copy
import functools
import io
import os

import deltawire.torch
import pytest
import torch
import torch.distributed as dist
from host_twin import LIBRARY, HostTwin
from models import Net, backward, batch, fingerprint, steps_by, whole_and_in_pieces, wrapped
from ranks import attempted, results
from watched import logged

AdamW = torch.optim.AdamW
OF_BFLOAT16 = 2.0**-7  # in which mean squares travel, there and back
AT_ONCE = "step<99: 3lc, rest fp32"  # a spec that names steps has no other first ones


def registered(spec=AT_ONCE, net=None, ddp=None, register=None, **of_adamw):
    model = wrapped(net or Net(), **(ddp or {}))
    optimizer = AdamW(model.parameters(), **({"lr": 0.01} | of_adamw))
    given = {"optimizer": optimizer} | (register or {})
    return model, optimizer, deltawire.torch.register(model, spec, **given)


def received(hook):
    """name -> squares, of the last exchange."""
    names = hook._parameters.names
    return {names[key]: each.squares for key, each in hook.optimizer_rules.received.items()}


def exact_squares(model, world_size, steps):
    """What every rank must receive of gradients that are sums over these steps."""
    net, named = model.module, dict(model.module.named_parameters())
    calls, sums = net.calls, dict.fromkeys(named, 0.0)
    for rank in range(world_size):
        total = dict.fromkeys(named, 0.0)
        for step in steps:
            net.calls = calls
            x, y = batch(rank, step)
            loss = (net(x) - y).square().mean()
            found = torch.autograd.grad(
                loss, list(named.values()), allow_unused=True, materialize_grads=True
            )
            total = {n: total[n] + g.double() for n, g in zip(named, found, strict=True)}
        for name, gradient in total.items():
            squares = gradient.square()
            two = squares.dim() > 1
            squares = torch.cat([squares.mean(1), squares.mean(0)]) if two else squares.mean()
            sums[name] = sums[name] + squares / world_size**2
    net.calls = calls
    return sums


def apart(found, exact):
    """The largest relative difference; of what is 0 exactly, the size."""
    differences = [(found[n] - exact[n]).abs() / (exact[n] + (exact[n] == 0)) for n in found]
    return max(each.max().item() for each in differences)


def exchanged(rank, world_size, report, spec):
    """Steps in which DDP rebuilds its buckets, and uses a layer in each second one."""
    model, optimizer, hook = registered(
        spec, Net(sometimes=True), {"find_unused_parameters": True}, {"min_elements": 32}
    )
    differences = []
    with contextlib.closing(hook):
        for step in range(4):
            exact = exact_squares(model, world_size, [step])
            backward(model, rank, step)
            differences.append(apart(received(hook), exact))
            optimizer.step()
    return max(differences), sorted(received(hook)), fingerprint(model)


def given_sgd(rank, world_size, report):
    model = wrapped(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    with contextlib.closing(deltawire.torch.register(model, "3lc", optimizer=optimizer)) as hook:
        backward(model, rank, 0)
        optimizer.step()
        return hook.optimizer_rules.held, hook.parsed_spec.text


def test_an_optimizer_that_needs_no_rule_is_stepped_as_it_is():
    assert results(given_sgd, 2) == [(set(), "direct(3lc:s=1,mode=auto,runs=on)")] * 2


@pytest.mark.parametrize("pattern", ["direct", "gather", "hierarchical:group=2"])
def test_every_rank_gets_the_exact_mean_squares(pattern):
    ranks = results(exchanged, 4 if "group" in pattern else 2, f"{pattern}({AT_ONCE})")
    for difference, names, digest in ranks:
        assert difference < OF_BFLOAT16
        assert {"layers.0.0.weight", "layers.0.0.bias", "extra.weight"} <= set(names)
        assert digest == ranks[0][2], "the replicas differ"


def of_unequal_rows(rank, world_size, report):
    """How much of a row has arrived by step, whose gradient is a hundredth of the other's."""
    model, optimizer, hook = registered(f"gather({AT_ONCE})", torch.nn.Linear(512, 2, bias=False))
    arrived = []
    with contextlib.closing(hook):
        for step in range(3):
            torch.manual_seed(10 * step + rank)
            optimizer.zero_grad()
            (model(torch.randn(8, 512)) * torch.tensor([1, 0.01])).sum().backward()
            arrived.append(model.module.weight.grad[1].count_nonzero().item())
            optimizer.step()
    return arrived, fingerprint(model)


def test_once_scales_are_known_rows_with_small_gradients_are_sent_too():
    (arrived, digest), other = results(of_unequal_rows, 2)
    assert arrived[0] == 0 < min(arrived[1:])
    assert other == (arrived, digest)


def accumulated(rank, world_size, report):
    """Two passes, of which the second is exchanged."""
    model, _, hook = registered()
    with contextlib.closing(hook):
        exact = exact_squares(model, world_size, [0, 1])
        for step, context in ((0, model.no_sync()), (1, contextlib.nullcontext())):
            with context:
                x, y = batch(rank, step)
                (model(x) - y).square().mean().backward()
        return apart(received(hook), exact)


def costs(rank, world_size, report):
    """(Bytes of the first step with the rule, without it; rows; the table)."""
    found = []
    for momentum in ("rate", "optimizer"):
        spec = found[0][1] if found else AT_ONCE
        model, optimizer, hook = registered(spec, register={"momentum": momentum})
        with contextlib.closing(hook):
            backward(model, rank, 0)
            optimizer.step()
            found.append((hook.metrics()["bytes_sent"], hook.spec, hook.explain()))
    rows = {row.name for row in found[0][2].rows if row.factored_second_moment and row.beta1 == 0.5}
    others = [explained.other_bytes for *_, explained in found]
    return found[0][0] - found[1][0], others[0] - others[1], rows, str(found[0][2])


class OfAll:
    """A hook whose state is a list of all ranks'."""

    def __init__(self, hook):
        self._hook = hook

    def state_dict(self):
        states = [None] * dist.get_world_size()
        dist.all_gather_object(states, self._hook.state_dict())
        return states


def goes_on(rank, world_size, report):
    """In one piece, and from the states of all ranks after three steps."""
    digests, (model, optimizer, _), state = whole_and_in_pieces(
        rank, lambda: registered(weight_decay=0.1), 6, 3, lambda p: (*p[:2], OfAll(p[2]))
    )
    torch.save(state, kept := io.BytesIO())
    return digests, like_stock(model, optimizer), kept.getvalue()


def like_stock(model, optimizer):
    """Whether the optimizer's state is that of a stock one, which goes on from it, and a stock
    one's is taken."""
    stock = AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    stock.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    stock.step()
    kept, plain = (each.state_dict()["state"] for each in (optimizer, stock))
    keys = [(k, list(v), [t.shape for t in v.values()]) for k, v in kept.items()]
    steps = {float(each["step"]) for each in kept.values()}
    optimizer.load_state_dict(copy.deepcopy(stock.state_dict()))
    return keys == [(k, list(v), [t.shape for t in v.values()]) for k, v in plain.items()], steps


def in_each_way(rank, world_size, report):
    """Weights and bytes where gradients stay where they are, are copied as from a GPU, and are
    coded by a device that the host plays."""
    found = {}
    ways = {"plain": False, "staged": False} | ({"device": HostTwin} if LIBRARY.is_file() else {})
    for way, twins in ways.items():
        os.environ["DELTAWIRE_FORCE_STAGING"] = "on" if way == "staged" else "off"
        model, optimizer, hook = registered(register={"twins": twins})
        with contextlib.closing(hook):
            steps_by(optimizer, model, rank, range(3))
            found[way] = fingerprint(model), hook.metrics()["total_bytes_sent"]
    del os.environ["DELTAWIRE_FORCE_STAGING"]
    return found


def several(rank, world_size, report):
    workers = (accumulated, costs, goes_on, in_each_way)
    return {each.__name__: each(rank, world_size, report) for each in workers}


@pytest.fixture(scope="module")
def of_two():
    return results(several, 2)


def test_accumulated_gradients_are_sent_with_their_own_squares(of_two):
    assert [each["accumulated"] < OF_BFLOAT16 for each in of_two] == [True, True]


def test_a_device_may_code_what_they_travel_with(of_two):
    for ways in (each["in_each_way"] for each in of_two):
        assert len(set(ways.values())) == 1, ways


def test_their_bytes_are_counted(of_two):
    more, others = (sum(each["costs"][i] for each in of_two) for i in (0, 1))
    rows, table = of_two[0]["costs"][2:]
    assert rows == {f"layers.{i}.0.weight" for i in range(6)}
    # 64 rows and columns of six matrices, to their owner and back, as bfloat16, and heads.
    assert 2 * 6 * 128 * 2 < more < 1.4 * 2 * 6 * 128 * 2 and others == more
    assert "; beta1 0.5; factored second moment" in table
    assert "other: heads of messages, mean squares of gradients' rows and columns." in table


def test_a_training_that_goes_on_from_a_checkpoint_is_the_same(of_two):
    for (whole, in_pieces), (is_stock, steps), _ in (each["goes_on"] for each in of_two):
        assert whole == in_pieces
        assert is_stock and steps == {6.0}


def goes_on_alone(rank, world_size, report, state):
    """From the states of two ranks; (difference of its mean squares, steps counted)."""
    model, optimizer, hook = registered(weight_decay=0.1)
    with contextlib.closing(hook):
        of_all = torch.load(io.BytesIO(state))
        for each, own in zip((model, optimizer, hook), of_all, strict=True):
            each.load_state_dict(own)
        exact = exact_squares(model, 1, [6])
        backward(model, rank, 6)
        difference = apart(received(hook), exact)
        optimizer.step()
    return difference, {float(each["step"]) for each in optimizer.state.values()}


def test_a_training_goes_on_with_another_number_of_ranks(of_two):
    ((difference, steps),) = results(goes_on_alone, 1, of_two[0]["goes_on"][-1])
    assert difference < OF_BFLOAT16 and steps == {7.0}


def scaled_steps(fused, scaler):
    """Five clipped steps; with a scaler, one in the middle overflows, and is skipped."""
    register = {"scaler": scaler} if scaler is not None else None
    model, optimizer, hook = registered(fused=fused, register=register)
    with contextlib.closing(hook):
        for step in range(5):
            for overflows in (True, False) if step == 2 and scaler is not None else (False,):
                model.zero_grad()
                x, y = batch(0, step)
                loss = (model(x) - y).square().mean() * (float("inf") if overflows else 1.0)
                if scaler is None:
                    loss.backward()
                    optimizer.step()
                else:
                    scaler.scale(loss).backward()
                    scaler.step(optimizer)
                    scaler.update()
    return fingerprint(model), {float(each["step"]) for each in optimizer.state.values()}


def with_scalers(rank, world_size, report):
    return [
        [
            scaled_steps(fused, each)
            for each in (None, torch.amp.GradScaler("cpu", init_scale=2.0**12))
        ]
        for fused in (False, True)
    ]


def clipped(rank, world_size, report):
    """How far weights are apart if gradients are scaled between backward and step."""
    ends = []
    for factor in (1.0, 0.01):
        model, optimizer, hook = registered(eps=0.0)
        with contextlib.closing(hook):
            for step in range(4):
                backward(model, rank, step)
                for each in model.parameters():
                    each.grad *= factor
                optimizer.step()
        ends.append(torch.cat([each.detach().flatten() for each in model.parameters()]))
    return (ends[0] - ends[1]).abs().max().item()


def with_closures(rank, world_size, report):
    digests = []
    for closes in (False, True):
        model, optimizer, hook = registered()
        with contextlib.closing(hook):
            for step in range(3):
                once = iter([functools.partial(backward, model, rank, step)])
                if closes:
                    assert 0 < optimizer.step(lambda once=once: next(once)()) < 9
                else:
                    next(once)()
                    optimizer.step()
        digests.append(fingerprint(model))
    return digests


def compiled(rank, world_size, report):
    """By the rule of rows and that of late gradients."""
    return [compiled_by(spec) for spec in (AT_ONCE, "gather(step<99: topk:k=5%, rest fp32)")]


def compiled_by(spec):
    """How far weights are from those of steps that torch.compile has not seen, and how often it had
    compiled after the third step, and after the last one."""
    graphs, ends, seen = [], [], []

    def backend(module, _):
        graphs.append(module)
        return module.forward

    for compiles in (True, False):
        torch._dynamo.reset()
        model, optimizer, hook = registered(spec)
        take_step = torch.compile(optimizer.step, backend=backend) if compiles else optimizer.step
        for step in range(5):
            backward(model, 0, step)
            take_step()
            seen.append(len(graphs))
        hook.close()
        ends.append(torch.cat([each.detach().flatten() for each in model.parameters()]))
    return (ends[0] - ends[1]).abs().max().item(), seen[2], seen[-1]


def said(rank, world_size, report):
    """What registration logs, and of what else is refused."""
    texts = logged()
    _, optimizer, hook = registered("3lc")
    hook.close()
    specs = [hook.spec]
    for spec, momentum in (
        ("3lc:pull=0.75", "rate"),
        ("gather(3lc)", "rate"),
        ("3lc", "optimizer"),
    ):
        *_, other = registered(spec, register={"momentum": momentum})
        specs.append(other.spec)
        other.close()
    refusals = [
        attempted(lambda more=more: registered(**more))
        for more in ({"amsgrad": True}, {"capturable": True}, {"differentiable": True})
    ]
    refusals.append(attempted(lambda: registered(register={"min_elements": 1})))
    left = len(optimizer._optimizer_step_pre_hooks)
    return [text for text in texts if "by a second" in text], refusals, left, specs


def alone(rank, world_size, report):
    workers = (with_scalers, clipped, with_closures, compiled, said)
    return {each.__name__: each(rank, world_size, report) for each in workers}


@pytest.fixture(scope="module")
def of_one():
    return results(alone, 1)[0]


@pytest.mark.parametrize("path", ["foreach", "fused"])
def test_a_loss_scale_changes_no_bit_and_a_skipped_step_leaves_nothing(of_one, path):
    plain, scaled = of_one["with_scalers"][path == "fused"]
    assert plain == scaled and plain[1] == {5.0}


def test_a_gradient_may_be_scaled_before_the_step(of_one):
    assert of_one["clipped"] < 1e-5


def test_a_closure_computes_the_gradients_of_the_step(of_one):
    plain, closed = of_one["with_closures"]
    assert plain == closed


def test_a_compiled_step_is_the_same_step(of_one):
    for difference, by_then, in_all in of_one["compiled"]:
        assert difference < 1e-4
        assert 0 < by_then == in_all, "it is compiled again in each step"


def test_registration_says_what_is_done_and_what_can_not_be(of_one):
    (text, *_), (amsgrad, capturable, differentiable, raw), left, _ = of_one["said"]
    assert (
        "AdamW steps 6 of 12 tensors, from step 25 on, by a second moment of their exact "
        "gradients' rows and columns" in text
    )
    assert "'3lc:s=1" in text and "beta1=0.9 becomes 0.5" in text and left == 0
    assert "has amsgrad=True" in amsgrad[1] and 'momentum="optimizer"' in amsgrad[1]
    assert "has capturable=True" in capturable[1]
    assert "has differentiable=True" in differentiable[1]
    assert {each[0] for each in (amsgrad, raw)} == {"InvalidArgumentError"}
    assert "min_elements=1" in raw[1] and "give 2 or more" in raw[1]


def test_first_steps_and_means_are_coded_finer_where_the_spec_leaves_it_open(of_one):
    plain, given, gathered, stock = of_one["said"][-1]
    first = "step<25: fp4:format=e2m1,block=32"
    assert plain == f"direct({first}, rest 3lc:s=1,mode=auto,runs=on,pull=0.5)"
    assert "pull=0.75" in given and stock == "direct(3lc:s=1,mode=auto,runs=on)"
    assert gathered == f"gather({first}, rest 3lc:s=1,mode=auto,runs=on)"
