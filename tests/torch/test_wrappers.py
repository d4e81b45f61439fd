"""Models that other functions of torch have made: compiled ones train; for the others the message
says what to do, alike on all ranks."""

import warnings

import deltawire.torch
import pytest
import torch
from models import WIDTH, Net, fingerprint, train_step, train_steps, wrapped
from ranks import results
from refusals import raised
from sharded import IS_SUPPORTED
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel


def fsdp1(module, _):
    from torch.distributed.fsdp import FullyShardedDataParallel

    return FullyShardedDataParallel(module, device_id=torch.device("cpu"))


def fsdp2(module, mesh):
    return torch.distributed.fsdp.fully_shard(module, mesh=mesh)


def replicate(module, _):
    from torch.distributed._composable.replicate import replicate

    return replicate(module)


def replicate_with_fsdp(module, mesh):
    from torch.distributed._composable.replicate_with_fsdp import replicate

    return replicate(module, mesh=mesh)


def compiled_ddp(module, _):
    return torch.compile(wrapped(module), backend="eager")


def compiled(module, _):
    return torch.compile(module, backend="eager")


def has(maker) -> bool:
    """Whether this version of torch has it; PyTorch 2.9's takes no mesh."""
    return maker is not replicate_with_fsdp or IS_SUPPORTED


SAYS = {
    fsdp1: "FullyShardedDataParallel shards parameters and gradients, which is not supported",
    fsdp2: None,  # test_fsdp.py
    replicate: "through a DistributedDataParallel that it hides, which is not supported",
    replicate_with_fsdp: None,
    compiled_ddp: "torch.compile(ddp_model)",
    compiled: "DistributedDataParallel(torch.compile(module))",
}


def refuse(rank, world_size, report):
    warnings.simplefilter("ignore")
    mesh = init_device_mesh("cpu", (world_size,))
    caught = {}
    for make in filter(has, SAYS):
        made = make(Net(), mesh)
        texts = []
        if SAYS[make] is not None:
            error = raised(TypeError, deltawire.torch.register, made, "fp32")
            texts.append((type(error).__name__, str(error)))
        if make is not compiled:
            outer = torch.nn.Sequential(made) if make is not compiled_ddp else made
            with pytest.raises(TypeError) as error:
                deltawire.torch.LocalSteps(
                    outer, torch.optim.SGD(made.parameters(), 0.1), steps=1, reducer="fp32"
                )
            texts.append((type(error.value).__name__, str(error.value)))
        caught[make.__name__] = texts
    return caught


def test_what_shards_or_replicates_by_itself_is_refused_with_advice():
    first, second = results(refuse, 2)
    assert first == second
    for make in filter(has, SAYS):
        says = SAYS[make]
        local = first[make.__name__]
        if says is not None:
            (kind, text), *local = local
            assert kind == "DTypeError" and says in text and "DistributedDataParallel" in text
        for kind, text in local:
            inside = "its module '0'" if make is not compiled_ddp else "a DistributedDataParallel"
            assert kind == "DTypeError" and "takes the bare module" in text and inside in text


def shard_a_parameter(rank, world_size, report):
    """Tensor parallelism changes parameters and leaves the module's class alone."""
    mesh = init_device_mesh("cpu", (world_size,))
    module = torch.nn.Linear(4, 4)
    spread = torch.distributed.tensor.distribute_tensor(module.weight.detach(), mesh)
    module.weight = torch.nn.Parameter(spread)
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    with pytest.raises(TypeError) as caught:
        deltawire.torch.LocalSteps(module, optimizer, steps=1, reducer="fp32")
    return str(caught.value)


def test_a_parameter_that_is_spread_over_ranks_is_named():
    for text in results(shard_a_parameter, 2):
        assert "parameter 'weight' is a DTensor" in text


def sparse(rank, world_size, report):
    module = torch.nn.Sequential(torch.nn.Embedding(99, 4, sparse=True), torch.nn.Linear(4, 2))
    caught = raised(ValueError, deltawire.torch.register, DistributedDataParallel(module), "fp32")
    module[0].weight.requires_grad_(False)
    deltawire.torch.register(DistributedDataParallel(module), "fp32")
    return str(caught)


def test_sparse_gradients_are_refused_with_fp32_and_frozen_ones_are_not():
    for text in results(sparse, 2):
        assert "parameter '0.weight' has sparse gradients" in text and "sparse=False" in text


def layers():
    """Without Net's count of its calls, for which dynamo would compile each step anew."""
    return Net().layers


def ddp_then_compile(module):
    return wrapped_whole(module), lambda model: torch.compile(model, backend="eager")


def compile_then_ddp(module):
    return wrapped_whole(torch.compile(module, backend="eager")), lambda model: model


def compile_in_place(module):
    module.compile(backend="eager")
    return wrapped_whole(module), lambda model: model


def not_compiled(module):
    return wrapped_whole(module), lambda model: model


def wrapped_whole(module):
    """In one bucket: dynamo's DDPOptimizer refuses a cap below DDP's first bucket of 1 MB."""
    return DistributedDataParallel(module)


def train_compiled(rank, world_size, report):
    states, residuals = {}, {}
    for make in (not_compiled, ddp_then_compile, compile_then_ddp, compile_in_place):
        torch._dynamo.reset()
        ddp_model, compile_it = make(layers())
        hook = deltawire.torch.register(ddp_model, "3lc")
        model = compile_it(ddp_model)
        train_steps(model, rank, range(3))
        assert hook.last_error is None and hook.metrics()["steps"] == 3
        states[make.__name__] = fingerprint(ddp_model)
        (kept,) = hook.state_dict()["residuals"][f"rank {rank}"]
        residuals[make.__name__] = kept.numpy().tobytes()
        hook.close()
    return states, residuals


def test_compiled_models_train_and_their_checkpoints_fit_the_others():
    (states, residuals), other = results(train_compiled, 2)
    assert states == other[0], "the replicas differ"
    assert len(set(residuals.values())) == 1, "the residuals know whether a model was compiled"
    assert len(set(states.values())) == 1


def frozen_under_compile(rank, world_size, report):
    """The check of parameters isn't compiled away."""
    module = layers()
    model = torch.compile(ddp := wrapped_whole(module), backend="eager")
    hook = deltawire.torch.register(ddp, "fp32")
    train_step(model, rank, 0)
    module[2][0].weight.requires_grad_(False)
    return str(raised(RuntimeError, train_step, model, rank, 1)), hook.metrics()["steps"]


def test_a_compiled_model_notices_frozen_parameters():
    for text, steps in results(frozen_under_compile, 2):
        assert "'2.0.weight' is frozen" in text and steps == 1


def python_reducer(rank, world_size, report):
    """The advice is what works."""
    with torch._dynamo.config.patch(optimize_ddp="python_reducer"):
        model = wrapped_whole(layers())
        with pytest.raises(ValueError) as caught:
            deltawire.torch.register(model, "fp32")
    with torch._dynamo.config.patch(optimize_ddp="ddp_optimizer"):
        model = wrapped_whole(layers())
        hook = deltawire.torch.register(model, "fp32")
        train_step(torch.compile(model, backend="eager"), rank, 0)
    return str(caught.value), hook.metrics()["steps"], fingerprint(model)


def test_the_python_reducer_is_refused_and_the_advice_works():
    first, second = results(python_reducer, 2)
    assert first == second and first[1] == 1
    assert 'optimize_ddp = "ddp_optimizer" before' in first[0]


def compile_local_steps(rank, world_size, report):
    states = []
    for way in (lambda m: m, lambda m: torch.compile(m, backend="eager")):
        torch._dynamo.reset()
        network = way(layers())
        optimizer = torch.optim.SGD(network.parameters(), 0.05)
        trainer = deltawire.torch.LocalSteps(network, optimizer, steps=2, reducer="sbc:p=10%")
        for number in range(4):
            x = torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(10 * rank + number))
            optimizer.zero_grad()
            network(x).square().mean().backward()
            trainer.step()
        state = trainer.state_dict()
        (kept,) = state["residuals"][f"rank {rank}"]
        residuals = kept.numpy().tobytes()
        states.append((fingerprint(network), residuals, [*state["common"][0]["reference"]]))
        trainer.close()
    return states


def test_local_steps_of_a_compiled_module():
    first, second = results(compile_local_steps, 2)
    plain, compiled_one = first
    assert plain == compiled_one
    assert [state[0] for state in first] == [state[0] for state in second]
