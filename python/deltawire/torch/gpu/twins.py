"""Which codecs have a twin, and how one is made."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from deltawire import _core
from deltawire.errors import invalid

if TYPE_CHECKING:
    from deltawire.torch.gpu.codec_twin import Twin

# The module and class of each codec's twin. Modules are imported when used: they need Triton.
_TWINS = {
    "3lc": ("threelc", "ThreeLC"),
    "int8": ("fixed", "Int8"),
    "topk": ("sparse", "TopK"),
    "sbc": ("sparse", "SBC"),
    **dict.fromkeys(("fp32", "bf16", "fp16"), ("fixed", "NarrowFloats")),
    **dict.fromkeys(("fp8", "fp4"), ("fixed", "Minifloats")),
    "blockint": ("fixed", "BlockInt"),
}


def missing_triton() -> str:
    """What is wrong with Triton here, and what to do; empty if nothing is."""
    try:
        triton = importlib.import_module("triton")
    except ModuleNotFoundError:
        return "it comes with PyTorch's builds for GPUs, and is not installed: pip install triton"
    if not hasattr(triton, "knobs"):
        return f"{triton.__version__} is too old; PyTorch 2.8 and later bring 3.4 or newer"
    return ""


def codecs_with_twin() -> tuple[str, ...]:
    """The names of the codecs that a device can encode and decode."""
    return tuple(_TWINS)


def twin(spec: str) -> Twin:
    """The twin of a codec, given its spec.

    Raises InvalidArgumentError for an invalid spec and for a codec without a twin, ImportError
    without Triton.
    """
    parsed = _core.Spec(spec)
    rule = parsed.rules[0]
    if parsed.codecs != rule.codec_alone:
        text = f"{spec} is no codec's spec, but {parsed.text}: a twin is made for each codec"
        raise invalid(text)
    return twin_of_canonical(rule.codec_alone)


def twin_of_canonical(spec: str) -> Twin:
    """As `twin`, for a spec that is known to be canonical."""
    codec = _core.NamedParameters(spec)
    name = codec.name
    if name not in _TWINS:
        raise invalid(
            f"{name} has no twin for tensors on a GPU; these have one: {', '.join(_TWINS)}"
        )
    if missing := missing_triton():
        raise ImportError(f"deltawire.torch.gpu needs Triton: {missing}", name="triton")
    module, made = _TWINS[name]
    kind = getattr(importlib.import_module(f"deltawire.torch.gpu.{module}"), made)
    return kind(spec, name, codec.parameters)
