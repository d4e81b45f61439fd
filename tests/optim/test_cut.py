"""What gcomp may do to a gradient, by what each optimizer can see of it."""

import deltawire
import numpy as np
import pytest

COUNT = 4000
SPECS = [
    "sgd:lr=0.05,weight_decay=0.01",
    "momentum:lr=0.05,momentum=0.7,dampening=0.3,weight_decay=0.01",
    "nesterov:lr=0.05,momentum=0.7,weight_decay=0.01",
    "adagrad:lr=0.01,lr_decay=0.1,weight_decay=0.01",
    "rmsprop:lr=0.001,alpha=0.9,weight_decay=0.01",
    "adam:lr=0.001,weight_decay=0.01",
    "adamw:lr=0.001,weight_decay=0.01",
]


def test_every_kind_is_here():
    with pytest.raises(deltawire.InvalidArgumentError) as caught:
        deltawire.Optimizer("none")
    known = str(caught.value).partition("use one of ")[2].split(", ")
    assert known == [spec.partition(":")[0] for spec in SPECS]


def units_of(significance):
    """One unit in the last place of each number, in float64; 0 for 0."""
    _, exponents = np.frexp(significance.astype(np.float64))
    return np.where(significance == 0, 0.0, np.ldexp(1.0, exponents - 24))


@pytest.mark.parametrize("spec", SPECS)
def test_a_gradient_moves_by_one_unit_of_its_significance_at_most(spec):
    random = np.random.default_rng(3)
    optimizer = deltawire.Optimizer(spec)
    weights = random.standard_normal(COUNT).astype(np.float32)
    largest, moved = 0.0, 0
    for _ in range(8):
        magnitudes = np.exp2(random.uniform(-20, 4, COUNT))
        gradient = (magnitudes * random.standard_normal(COUNT)).astype(np.float32)
        seen = optimizer.significance("w", weights)
        file = deltawire.encode(gradient, "gcomp", significance=seen)
        error = np.abs(deltawire.decode(file).astype(np.float64) - gradient)
        units = units_of(seen)
        assert (error <= units).all()
        assert (error <= 2.0**-23 * np.abs(seen.astype(np.float64))).all()
        moved += np.count_nonzero(error)
        largest = max(largest, (error[units > 0] / units[units > 0]).max(initial=0.0))
        optimizer.step("w", weights, deltawire.decode(file))
    assert moved > COUNT, "hardly anything was cut"
    assert largest > 0.9, "a smaller bound would do"


@pytest.mark.parametrize("beta2", [0.999, 0.9])
@pytest.mark.parametrize("second", [0.0, 1e-3, 1.0, 30.0])
def test_adams_moment_of_step_1_promises_root_two_too_much_at_most(beta2, second):
    """errata.md: the significance of step 2 knows v_1, the step itself divides by v_2."""
    optimizer = deltawire.Optimizer(f"adam:lr=0.01,beta1=0,beta2={beta2},eps=0")
    weights = np.full(3, 0.5, np.float32)
    optimizer.step("w", weights, np.ones(3, np.float32))
    seen = optimizer.significance("w", weights)
    v2 = (1 - beta2) * (beta2 * 1.0 + second**2) / (1 - beta2**2)
    true = weights.astype(np.float64) * np.sqrt(v2) / 0.01
    ratio = np.sqrt((1 + beta2) / (beta2 + second**2))
    assert seen == pytest.approx(ratio * true, rel=1e-5)
    assert (seen <= np.sqrt((1 + beta2) / beta2) * true * (1 + 1e-5)).all()
