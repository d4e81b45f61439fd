"""The methods that are compared, and the sizes of the network."""

import dataclasses
import functools
from collections.abc import Callable

import torch
from deltawire.torch import RisingSGD


def _sgd(rate: float) -> Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]:
    return functools.partial(torch.optim.SGD, lr=float(rate))


def _rising(rate: float) -> Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]:
    return functools.partial(RisingSGD, lr=float(rate))


_NESTEROV = functools.partial(torch.optim.SGD, lr=0.7, momentum=0.9, nesterov=True)


@dataclasses.dataclass(frozen=True)
class Method:
    """One row of the table.

    Attributes:
        words: what it is.
        spec: pattern and codec, as `deltawire.torch.LocalSteps` takes them.
        every_step: gradients are averaged in every step (DDP), not weight changes in every round.
        rule: AdamW steps as `register` has it with optimizer=.
        outer: makes the optimizer of the common weights; None: the mean change is added.
        fragments, overlap, mixing: as `deltawire.torch.LocalSteps` has them.
        muon: the workers step the matrices between embedding and decoder with Muon, not AdamW.
        ef21: gradients of these have Muon's momentum before they are coded, and their changes are.
    """

    words: str
    spec: str
    every_step: bool = False
    rule: bool = False
    outer: Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer] | None = None
    fragments: int = 1
    overlap: int = 0
    mixing: float | None = None
    muon: bool = False
    ef21: bool = False


METHODS = {
    "ddp": Method("DDP", "direct(fp32)", every_step=True),
    "ddp-3lc": Method("DDP", "direct(3lc)", every_step=True),
    "ddp-3lc-rows": Method(
        "DDP, factored second moment", "direct(3lc)", every_step=True, rule=True
    ),
    "ddp-topk": Method("DDP", "gather(topk:k=1%)", every_step=True, rule=True),
    "ddp-topk-beta1": Method("DDP, momentum as it is", "gather(topk:k=1%)", every_step=True),
    "local": Method("local steps", "direct(fp32)"),
    "local-3lc": Method("local steps", "direct(3lc)"),
    "diloco": Method("DiLoCo", "direct(fp32)", outer=_NESTEROV),
    "diloco-3lc": Method("DiLoCo", "direct(3lc)", outer=_NESTEROV),
    "diloco-3lc-forgets": Method("DiLoCo", "direct(3lc with pull_decay=0.5)", outer=_NESTEROV),
    "diloco-3lc-bold": Method("DiLoCo", "direct(3lc:s=1.75)", outer=_NESTEROV),
    "sbc": Method("SBC", "gather(sbc:p=1%)"),
    "diloco-sbc": Method("DiLoCo", "gather(sbc:p=1%)", outer=_NESTEROV),
    "sparseloco": Method("SparseLoCo", "gather(sparseloco)"),
    "streaming-fp4": Method(
        "Streaming DiLoCo",
        "direct(fp4:format=e3m0)",
        outer=_NESTEROV,
        fragments=3,
        overlap=5,
        mixing=0.5,
    ),
    "ddp-muon": Method("DDP with Muon", "direct(fp32)", every_step=True, muon=True),
    **{
        f"ddp-muon-{codec}": Method(
            f"DDP with Muon{and_rule}", spec, every_step=True, rule=bool(and_rule), muon=True
        )
        for codec, and_rule, spec in (
            ("3lc", "", "direct(3lc)"),
            ("3lc-rows", ", the rest factored", "direct(3lc)"),
            ("topk", "", "gather(topk:k=1%)"),
            ("fp4", "", "direct(fp4)"),
        )
    },
    **{
        f"ef21-muon-{codec}": Method(
            "DDP with EF21-Muon", spec, every_step=True, rule=True, muon=True, ef21=True
        )
        for codec, spec in (("3lc", "direct(3lc)"), ("topk", "gather(topk:k=1%)"))
    },
    "local-muon-3lc": Method("local steps with Muon", "direct(3lc)", muon=True),
    "diloco-muon": Method("DiLoCo with Muon", "direct(fp32)", outer=_NESTEROV, muon=True),
    "diloco-muon-3lc": Method("DiLoCo with Muon", "direct(3lc)", outer=_NESTEROV, muon=True),
    "pulseloco": Method("PULSELoCo", "direct(pulseloco)", outer=_NESTEROV),
    "muloco": Method("MuLoCo", "direct(muloco)", outer=_NESTEROV, muon=True),
    # What SparseLoCo's parts do: its values, its decay, its feedback, and outer optimizers.
    "sparseloco-fp32": Method(
        "SparseLoCo, values in fp32", "gather(topk:k=1.5625%,chunk=4096 with decay=0.95)"
    ),
    "sparseloco-no-decay": Method(
        "SparseLoCo without decay", "gather(topk:k=1.5625%,values=2bit,positions=auto,chunk=4096)"
    ),
    "sparseloco-warmup": Method(
        "SparseLoCo, denser at first",
        "gather(topk:k=1.5625%,values=2bit,positions=auto,chunk=4096,warmup=8 with decay=0.95)",
    ),
    "sparseloco-denser": Method("SparseLoCo, 1 of 16 elements", "gather(sparseloco:k=6.25%)"),
    "sparseloco-nesterov": Method(
        "SparseLoCo with DiLoCo's outer optimizer", "gather(sparseloco)", outer=_NESTEROV
    ),
    **{
        f"sparseloco-{'muon-' * muon}outer-{rate}": Method(
            f"SparseLoCo{' with Muon' * muon}, outer rate {rate}",
            "gather(sparseloco)",
            outer=_sgd(rate),
            muon=muon,
        )
        for muon in (False, True)
        for rate in (2, 4, 7)
    },
    **{
        f"sparseloco-{'muon-' * muon}rising-{rate}": Method(
            f"SparseLoCo{' with Muon' * muon}, outer rate rising to {rate}",
            "gather(sparseloco)",
            outer=_rising(rate),
            muon=muon,
        )
        for rate, muon in ((4, False), (7, False), (4, True))
    },
    "sparseloco-denser-outer-7": Method(
        "SparseLoCo, 1 of 43 elements, outer rate 7",
        "gather(sparseloco:k=2.34375%)",
        outer=_sgd(7),
    ),
    **{
        f"sparseloco-direct-outer-{rate}": Method(
            f"SparseLoCo by direct, outer rate {rate}", "direct(sparseloco)", outer=_sgd(rate)
        )
        for rate in (4, 7)
    },
    **{
        f"sparseloco-pull-{share}-outer-{rate}": Method(
            f"SparseLoCo by direct, means {share} times as dense, outer rate {rate}",
            f"direct(sparseloco:pull={1.5625 * share}%)",
            outer=_sgd(rate),
        )
        for share, rate in ((2, 4), (3, 4), (3, 7))
    },
    "sbc-outer-4": Method("SBC, outer rate 4", "gather(sbc:p=1%)", outer=_sgd(4)),
    "sbc-rising-4": Method("SBC, outer rate rising to 4", "gather(sbc:p=1%)", outer=_rising(4)),
    "local-outer-4": Method("local steps, outer rate 4", "direct(fp32)", outer=_sgd(4)),
}


def _streaming(
    words: str, overlap: int, mixing: float | None, spec: str = "direct(fp32)"
) -> Method:
    return Method(
        f"Streaming DiLoCo, {words}",
        spec,
        outer=_NESTEROV,
        fragments=3,
        overlap=overlap,
        mixing=mixing,
    )


# What the parts of Streaming DiLoCo cost: fragments, the steps of overlap (tau), what is kept of a
# worker's own weights (alpha; "on top": all that it has moved since), and fp4.
STREAMING = {
    "streaming-fragments": _streaming("fragments alone", 0, None),
    "streaming-fragments-fp4": _streaming("fragments alone", 0, None, "direct(fp4:format=e3m0)"),
    **{
        f"streaming-{tau}-{alpha}": _streaming(f"tau {tau}, {words}", tau, mixing)
        for tau in (1, 3, 5)
        for alpha, words, mixing in (
            ("top", "on top", None),
            ("0", "alpha 0", 0.0),
            ("0.5", "alpha 0.5", 0.5),
        )
    },
}
METHODS |= STREAMING
COMPARED = ("ddp", "local", "diloco", "diloco-3lc", "sbc", "sparseloco", "streaming-fp4")


@dataclasses.dataclass(frozen=True)
class Size:
    """A network and its batches.

    Attributes:
        width, layers: of the transformer; of an LSTM half the width.
        length: bytes of a sequence.
        batch: sequences of a worker's step.
        learning_rate: AdamW's highest.
        held_out: sequences of the held-out loss.
        embedding: standard deviation of the first embedding; None: PyTorch's, which is 1. With
            GPT-2's a large network soon learns what depends on places.
        is_lstm: no transformer, an LSTM.
    """

    width: int
    layers: int
    length: int
    batch: int
    learning_rate: float
    held_out: int
    embedding: float | None = None
    is_lstm: bool = False


_GPT2_DEVIATION = 0.02
SIZES = {
    "tiny": Size(width=16, layers=1, length=16, batch=2, learning_rate=3e-3, held_out=16),
    "small": Size(width=96, layers=4, length=64, batch=2, learning_rate=2e-3, held_out=256),
    "lstm": Size(96, 1, length=64, batch=4, learning_rate=4e-3, held_out=256, is_lstm=True),
    "22m": Size(
        width=512,
        layers=7,
        length=128,
        batch=16,
        learning_rate=6e-4,
        held_out=512,
        embedding=_GPT2_DEVIATION,
    ),
    **{
        name: Size(width, layers, 256, 8, 3e-4, 512, _GPT2_DEVIATION)
        for name, width, layers in (("151m", 1024, 12), ("1b", 2048, 20))
    },
}
