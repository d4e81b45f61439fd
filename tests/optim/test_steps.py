"""The steps against torch.optim's, over 50 steps of random gradients."""

import deltawire
import numpy as np
import pytest
import torch
from refusals import raised

STEPS = 50
SHAPE = (37, 41)

# (ours, torch's), at the defaults and with no setting at its default.
PAIRS = {
    "sgd": ("sgd", torch.optim.SGD, {}),
    "sgd all": (
        "sgd:lr=0.05,weight_decay=0.02",
        torch.optim.SGD,
        {"lr": 0.05, "weight_decay": 0.02},
    ),
    "momentum": ("momentum", torch.optim.SGD, {"momentum": 0.9}),
    "momentum all": (
        "momentum:lr=0.05,momentum=0.7,dampening=0.3,weight_decay=0.02",
        torch.optim.SGD,
        {"lr": 0.05, "momentum": 0.7, "dampening": 0.3, "weight_decay": 0.02},
    ),
    "nesterov": ("nesterov", torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "nesterov all": (
        "nesterov:lr=0.05,momentum=0.7,weight_decay=0.02",
        torch.optim.SGD,
        {"lr": 0.05, "momentum": 0.7, "weight_decay": 0.02, "nesterov": True},
    ),
    "adagrad": ("adagrad", torch.optim.Adagrad, {}),
    "adagrad all": (
        "adagrad:lr=0.05,lr_decay=0.1,eps=1e-4,initial_accumulator=0.3,weight_decay=0.02",
        torch.optim.Adagrad,
        {
            "lr": 0.05,
            "lr_decay": 0.1,
            "eps": 1e-4,
            "initial_accumulator_value": 0.3,
            "weight_decay": 0.02,
        },
    ),
    "rmsprop": ("rmsprop", torch.optim.RMSprop, {}),
    "rmsprop all": (
        "rmsprop:lr=0.004,alpha=0.8,eps=1e-4,weight_decay=0.02",
        torch.optim.RMSprop,
        {"lr": 0.004, "alpha": 0.8, "eps": 1e-4, "weight_decay": 0.02},
    ),
    "adam": ("adam", torch.optim.Adam, {}),
    "adam all": (
        "adam:lr=0.004,beta1=0.4,beta2=0.9,eps=1e-4,weight_decay=0.02",
        torch.optim.Adam,
        {"lr": 0.004, "betas": (0.4, 0.9), "eps": 1e-4, "weight_decay": 0.02},
    ),
    "adamw": ("adamw", torch.optim.AdamW, {}),
    "adamw all": (
        "adamw:lr=0.004,beta1=0.8,beta2=0.97,eps=1e-4,weight_decay=0.2",
        torch.optim.AdamW,
        {"lr": 0.004, "betas": (0.8, 0.97), "eps": 1e-4, "weight_decay": 0.2},
    ),
}


def relative_gap(ours, theirs):
    """Of the largest difference to the largest parameter, and of the norms."""
    return np.abs(ours - theirs).max() / np.abs(theirs).max(), (
        np.linalg.norm(ours - theirs) / np.linalg.norm(theirs)
    )


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_fifty_steps_are_pytorchs(name, scale):
    spec, kind, settings = PAIRS[name]
    random = np.random.default_rng(11)
    ours = random.standard_normal(SHAPE).astype(np.float32)
    parameter = torch.nn.Parameter(torch.from_numpy(ours.copy()))
    theirs = kind([parameter], **settings)
    optimizer = deltawire.Optimizer(spec)
    start = ours.copy()
    for step in range(STEPS):
        gradient = (scale * random.standard_normal(SHAPE)).astype(np.float32)
        parameter.grad = torch.from_numpy(gradient.copy())
        theirs.step()
        optimizer.step("w", ours, gradient)
        largest, norm = relative_gap(ours, parameter.detach().numpy())
        assert largest <= 1e-6 and norm <= 1e-6, f"step {step}: {largest:.1e}, {norm:.1e}"
    assert not np.array_equal(ours, start)
    assert optimizer.steps_of("w") == STEPS


def test_the_rate_follows_a_schedule():
    random = np.random.default_rng(5)
    ours = random.standard_normal(SHAPE).astype(np.float32)
    parameter = torch.nn.Parameter(torch.from_numpy(ours.copy()))
    theirs = torch.optim.Adam([parameter], lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(theirs, T_max=20)
    optimizer = deltawire.Optimizer("adam:lr=0.01")
    for _ in range(20):
        gradient = random.standard_normal(SHAPE).astype(np.float32)
        parameter.grad = torch.from_numpy(gradient.copy())
        theirs.step()
        optimizer.step("w", ours, gradient)
        schedule.step()
        optimizer.learning_rate = theirs.param_groups[0]["lr"]
    assert max(relative_gap(ours, parameter.detach().numpy())) <= 1e-6


def test_a_lazy_step_is_sparse_adams():
    random = np.random.default_rng(7)
    count = 200
    ours = random.standard_normal(count).astype(np.float32)
    parameter = torch.nn.Parameter(torch.from_numpy(ours.copy()))
    theirs = torch.optim.SparseAdam([parameter], lr=0.01)
    # SparseAdam adds eps before it corrects the second moment's bias, which only eps = 0 hides.
    theirs.param_groups[0]["eps"] = 0.0
    optimizer = deltawire.Optimizer("adam:lr=0.01,eps=0")
    for _ in range(20):
        keys = np.sort(random.choice(count, 30, replace=False)).astype(np.uint32)
        values = random.standard_normal(30).astype(np.float32)
        parameter.grad = torch.sparse_coo_tensor(
            keys[None].astype(np.int64), torch.from_numpy(values), (count,), check_invariants=True
        )
        theirs.step()
        optimizer.step_pairs("w", ours, keys, values)
    assert max(relative_gap(ours, parameter.detach().numpy())) <= 1e-6


def test_all_keys_are_the_dense_step():
    random = np.random.default_rng(9)
    for spec, _, _ in PAIRS.values():
        dense = random.standard_normal(300).astype(np.float32)
        sparse = dense.copy()
        one, other = deltawire.Optimizer(spec), deltawire.Optimizer(spec)
        for _ in range(5):
            gradient = random.standard_normal(300).astype(np.float32)
            one.step("w", dense, gradient)
            other.step_pairs("w", sparse, np.arange(300, dtype=np.uint32), gradient)
        assert dense.tobytes() == sparse.tobytes()
        assert one.save() == other.save()


def test_state_goes_on_where_it_was():
    random = np.random.default_rng(3)
    ours = random.standard_normal(SHAPE).astype(np.float32)
    optimizer = deltawire.Optimizer("adamw")
    gradients = [random.standard_normal(SHAPE).astype(np.float32) for _ in range(4)]
    for gradient in gradients[:2]:
        optimizer.step("w", ours, gradient)
    restored, copy = deltawire.Optimizer("adamw"), ours.copy()
    restored.load(optimizer.save())
    for gradient in gradients[2:]:
        optimizer.step("w", ours, gradient)
        restored.step("w", copy, gradient)
    assert ours.tobytes() == copy.tobytes()
    with pytest.raises(deltawire.DeltawireError, match="kind") as caught:
        deltawire.Optimizer("adam").load(optimizer.save())
    assert caught.value.code == "Mismatch"


def test_specs_are_canonical_and_bad_ones_value_errors():
    assert deltawire.Optimizer("sgd:lr=0.1").spec == "sgd:lr=0.1,weight_decay=0"
    for spec, says in {"lamb": "adamw", "sgd:beta1=1": "weight_decay", "adam:beta1=1": "<"}.items():
        assert "\n" not in str(raised(ValueError, deltawire.Optimizer, spec, match=says))
    optimizer = deltawire.Optimizer("sgd")
    with pytest.raises(ValueError, match="lr=-1"):
        optimizer.learning_rate = -1


def test_arrays_that_cant_be_stepped():
    optimizer = deltawire.Optimizer("sgd")
    good = np.ones((4, 4), np.float32)
    frozen = good.copy()
    frozen.flags.writeable = False
    keys = np.arange(2, dtype=np.uint32)
    for call, says in [
        (lambda: optimizer.step("w", good.astype(np.float64), good), "parameters must be"),
        (lambda: optimizer.step("w", good, good.astype(np.float16)), "gradient must be"),
        (lambda: optimizer.step("w", [1.0], good), "parameters must be"),
        (lambda: optimizer.step_pairs("w", good, keys.astype(np.int64), good[0, :2]), "keys must"),
    ]:
        with pytest.raises(TypeError, match=says):
            call()
    for call, says in [
        (lambda: optimizer.step("w", good.T[1:, 1:], good[1:, 1:]), "C-contiguous"),
        (lambda: optimizer.step("w", frozen, good), "writable"),
        (lambda: optimizer.step("w", good, good[:2]), "8 gradients where 16 are due"),
        (lambda: optimizer.step_pairs("w", good, keys[::-1], good[0, :2]), "increasing"),
    ]:
        with pytest.raises(ValueError, match=says):
            call()
    assert (good == 1).all()


def test_significance_is_an_array_like_the_parameters():
    optimizer = deltawire.Optimizer("sgd:lr=0.5,weight_decay=0.5")
    parameters = np.arange(6, dtype=np.float32).reshape(2, 3)
    out = optimizer.significance("w", parameters)
    assert out.shape == (2, 3) and out.dtype == np.float32
    assert np.array_equal(out, 1.5 * parameters)
    assert optimizer.significance("w", parameters, out) is out
    for dtype, factor in (("float32", 1), ("bfloat16", 2**16), ("float16", 2**13)):
        seen = optimizer.significance("w", parameters, kept_as=dtype)
        assert np.array_equal(seen, 1.5 * factor * parameters)
    with pytest.raises(ValueError, match="kept_as='int8': give one of float32, bfloat16, float16"):
        optimizer.significance("w", parameters, out, kept_as="int8")
    with pytest.raises(ValueError, match="has no effect with 'fp32'"):
        deltawire.encode(parameters, "fp32", significance=out)
    with pytest.raises(ValueError, match="shape"):
        deltawire.encode(parameters, "fp32", significance=out[:1])
