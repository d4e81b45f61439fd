"""Rules: each tensor by its own codec, as if that codec had the model alone."""

import deltawire
import deltawire.torch
import pytest
import torch
from models import WIDTH, Net, batch, wrapped
from ranks import results

RULES = "direct(layers.0*: 3lc:s=1.75, dims>=2 step<1: int8, elements=64: fp32, rest bf16)"


def codec_of(name: str, gradient: torch.Tensor, step: int) -> str:
    """What RULES say of a tensor."""
    if name.startswith("layers.0"):
        return "3lc:s=1.75"
    if gradient.dim() == 2:
        return "int8" if step == 0 else "bf16"
    return "fp32"


def means_of(rank: int, spec: str, steps: int) -> list[dict[str, torch.Tensor]]:
    """Of every step, the mean gradients by name, of a model whose weights stay as they are."""
    model = wrapped(Net())
    hook = deltawire.torch.register(model, spec, min_elements=1)
    means = []
    for step in range(steps):
        model.zero_grad()
        x, y = batch(rank, step)
        torch.nn.functional.mse_loss(model(x), y).backward()
        named = model.module.named_parameters()
        means.append({name: parameter.grad.clone() for name, parameter in named})
    hook.close()
    return means


def compare(rank, world_size, report):
    mixed = means_of(rank, RULES, 2)
    wrong = []
    for codec in ("3lc:s=1.75", "int8", "bf16", "fp32"):
        alone = means_of(rank, f"direct({codec})", 2)
        for step in range(2):
            for name, mean in mixed[step].items():
                # From step 1 on, int8's residual is in what bf16 sends.
                if codec_of(name, mean, step) != codec or (codec == "bf16" and step > 0):
                    continue
                if not torch.equal(mean, alone[step][name]):
                    wrong.append((codec, step, name))
    return wrong


def carried(rank, world_size, report):
    """How far the sum of two means is from the exact one, with int8 first and then fp32."""
    mixed = means_of(rank, "direct(step<1: int8, rest fp32)", 2)
    exact = means_of(rank, "direct(fp32)", 2)
    int8 = means_of(rank, "direct(int8)", 2)
    name = "layers.1.0.weight"
    lost = (int8[0][name] - exact[0][name]).norm()
    left = (mixed[0][name] + mixed[1][name] - exact[0][name] - exact[1][name]).norm()
    return float(left / lost)


def test_each_tensor_has_the_bytes_of_its_codec():
    assert WIDTH == 64
    for wrong in results(compare, world_size=2):
        assert wrong == []


def test_what_a_codec_left_leaves_with_the_next():
    for share in results(carried, world_size=2):
        assert share < 1e-4


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("direct(conv*: 3lc)", "end them with 'rest CODEC'"),
        ("direct(conv* size>3: 3lc, rest fp32)", "'size>3' is no condition"),
        ("conv*: sbc, rest fp32", "write the one to use"),
    ],
)
def test_rules_that_are_none_say_what_to_do(spec, words):
    with pytest.raises(deltawire.InvalidArgumentError, match="codec rules|patterns") as refusal:
        deltawire.canonical_spec(spec)
    assert words in str(refusal.value)
