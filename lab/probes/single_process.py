"""The effect of a codec on training, with all ranks simulated in one process, without a network.

Each rank's gradients are encoded and decoded once, as one message (the pattern `gather`); with
--residual the loss is added to the rank's next gradient. With --direct the mean of the decoded
gradients is encoded again, as the pattern `direct` does, for codecs whose default that is. The mean
is used by one optimizer, SGD with momentum or AdamW; with --rule it steps what arrives late as
`register(..., optimizer=optimizer)` lets it. It prints three figures for each codec: accuracy on
other data after the last step, one for each seed, the loss there, and bits per element of the
ranks' messages, headers included. The LSTMs, of 4.6 million, 1.4 million and 58,000
parameters, predict the next word of WikiText-2, in batches of 16 x 32 words, and are measured on
further pieces of the same text.

usage: python -m lab.probes.single_process fp32 fastsgd fastsgd:keep=10% --residual --lr 0.06
       python -m lab.probes.single_process fp32 topk sbc --residual --optimizer adamw --lr 0.002 \
           --batch 64 --fall --direct --rule --seeds 1 2 3
       python -m lab.probes.single_process fp32 topk --residual --rule --network resnet20 --lr 0.1
"""

import argparse
import dataclasses
import functools
import statistics
import sys
from collections.abc import Callable, Sequence

import deltawire
import numpy as np
import torch

from lab.command.program import main_of, make_parser
from lab.data.images import DataError
from lab.demo.workloads import WORKLOADS
from lab.models.evaluate import held_out, pieces_of
from lab.models.trainings import make_training
from lab.probes.register_rule import MIN_ELEMENTS, make_rule
from lab.ranks.simulated import LossAt, SimulatedRanks, add_options, image_losses

# Their sizes in lab.models.trainings.
_LSTMS = {"large-lstm": "large", "lstm": "full", "small-lstm": "small"}
_LSTM_PIECES = 40  # batches that they are measured on
_CONSTANT_SHARE = 0.6  # of the steps, as in lab.demo; then the rate falls to 0


@dataclasses.dataclass(frozen=True)
class Task:
    """What is trained.

    Attributes:
        network: newly initialized, of all ranks.
        losses: of each rank.
        measure: loss and accuracy on other data, once.
    """

    network: torch.nn.Module
    losses: list[LossAt]
    measure: Callable[[], tuple[float, float]]


def make_task(given: argparse.Namespace) -> Task:
    """The network and data of one seed. Raises DataError."""
    if given.network in _LSTMS:
        numbers = range(given.seed * given.ranks, (given.seed + 1) * given.ranks)
        trainings = [make_training("lstm", _LSTMS[given.network], number) for number in numbers]
        network, batch_at = trainings[0].network, trainings[0].batch_at
        losses = [functools.partial(each.loss_at, model=network) for each in trainings]
        further = map(batch_at, range(given.steps, given.steps + _LSTM_PIECES))
        pieces = trainings[0].held_out or further
        return Task(network, losses, lambda: held_out(network, pieces))
    workload = WORKLOADS[given.network]
    given.data = given.data or workload.default_data()
    images = workload.load_images(given.data)
    network = workload.make_network(given.seed)
    return Task(
        network,
        image_losses(network, images, given),
        lambda: held_out(network, pieces_of(images)),
    )


class Coder:
    """One sender's codec, with its residuals: a message of all tensors in each step.

    Args:
        spec: the codec.
        with_residual: what a message loses is added to the next step's values.
        seed: of its random numbers, which are others in each step; another for each coder.
    """

    def __init__(self, spec: str, with_residual: bool, seed: int = 0) -> None:
        self._channel = deltawire.Channel(
            spec, min_elements=MIN_ELEMENTS, error_feedback=False, seed=seed
        )
        self._with_residual = with_residual
        self._residuals: dict[str, np.ndarray] = {}
        self.bits = 0
        self.elements = 0

    def through(self, tensors: Sequence[np.ndarray]) -> list[np.ndarray]:
        """A step's tensors as the other ranks decode them."""
        sent = {
            str(index): tensor + self._residuals.get(str(index), np.float32(0))
            for index, tensor in enumerate(tensors)
        }
        message = self._channel.encode(sent)
        seen = {name: np.empty(values.shape, np.float32) for name, values in sent.items()}
        self._channel.decode(message, seen, accumulate=False)
        if self._with_residual:
            self._residuals = {name: sent[name] - seen[name] for name in sent}
        self.bits += 8 * len(message)
        self.elements += sum(tensor.size for tensor in tensors)
        return list(seen.values())


def make_optimizer(network: torch.nn.Module, given: argparse.Namespace) -> torch.optim.Optimizer:
    """Of all ranks."""
    if given.optimizer == "adamw":
        return torch.optim.AdamW(network.parameters(), lr=given.lr, betas=tuple(given.betas))
    return torch.optim.SGD(network.parameters(), lr=given.lr, momentum=given.momentum)


def rate_at(step: int, given: argparse.Namespace) -> float:
    """The learning rate."""
    left = (given.steps - step) / given.steps
    return given.lr * min(1.0, left / (1.0 - _CONSTANT_SHARE)) if given.fall else given.lr


def coder_of_means(spec: str, given: argparse.Namespace) -> Coder | None:
    """Codes the means, too, if the codec's default pattern does."""
    is_direct = deltawire.canonical_spec(spec).startswith("direct")
    return Coder(spec, given.residual, given.ranks) if given.direct and is_direct else None


def train(spec: str, given: argparse.Namespace) -> tuple[float, float, float]:
    """Loss, accuracy and bits per element; all NaN if training diverged."""
    task = make_task(given)
    network = task.network
    optimizer = make_optimizer(network, given)
    rule = make_rule(spec, network, optimizer) if given.rule else None
    if rule is not None:
        rule.attach()
    coders = [Coder(spec, given.residual, rank) for rank in range(given.ranks)]
    of_means = coder_of_means(spec, given)
    simulated = SimulatedRanks(network, task.losses, half=given.bf16)
    for step in range(given.steps):
        means = [np.zeros(p.shape, np.float32) for p in network.parameters()]
        for coder, gradients in zip(coders, simulated.gradients(step), strict=True):
            if not all(gradient.isfinite().all() for gradient in gradients):
                return float("nan"), float("nan"), float("nan")
            seen = coder.through([gradient.numpy() for gradient in gradients])
            for mean, values in zip(means, seen, strict=True):
                mean += values / given.ranks
        if of_means is not None:
            means = of_means.through(means)
        for parameter, mean in zip(network.parameters(), means, strict=True):
            parameter.grad = torch.from_numpy(mean)
        if rule is not None:
            rule.step = step
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, given)
        optimizer.step()
    bits = sum(coder.bits for coder in coders) / sum(coder.elements for coder in coders)
    return *task.measure(), bits


def parse(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = make_parser("lab.probes.single_process", __doc__)
    parser.add_argument("specs", nargs="+", metavar="CODEC", help='e.g. "fastsgd:keep=10%%"')
    networks = (*WORKLOADS, *_LSTMS)
    parser.add_argument("--network", choices=networks, default="lenet5", help="default lenet5")
    parser.add_argument("--residual", action="store_true", help="error feedback for all codecs")
    parser.add_argument("--optimizer", choices=("sgd", "adamw"), default="sgd")
    parser.add_argument(
        "--betas", nargs=2, type=float, default=(0.9, 0.999), help="AdamW's; default 0.9 0.999"
    )
    parser.add_argument(
        "--rule", action="store_true", help="step what arrives late as register(optimizer=) does"
    )
    parser.add_argument("--direct", action="store_true", help="encode the means, too")
    parser.add_argument("--bf16", action="store_true", help="compute in bfloat16 (autocast)")
    parser.add_argument("--fall", action="store_true", help="of the rate, as in lab.demo")
    add_options(parser, batch=32)
    parser.set_defaults(data=None)
    parser.add_argument("--seeds", nargs="+", type=int, help="several, instead of --seed")
    given = parser.parse_args(argv)
    given.seeds = given.seeds or [given.seed]
    return given


def run(given: argparse.Namespace) -> None:
    """Prints a line for each codec."""
    for spec in given.specs:
        losses, rights = [], []
        for seed in given.seeds:
            given.seed = seed
            loss, right, bits = train(spec, given)
            losses.append(loss)
            rights.append(right)
        each = " ".join(f"{100 * right:5.1f}" for right in rights) if len(rights) > 1 else ""
        middle, loss = 100 * statistics.median(rights), statistics.median(losses)
        print(f"{spec:32} {each} {middle:6.1f} %  loss {loss:.3f}  {bits:7.3f} bits", flush=True)


main = main_of("lab.probes.single_process", parse, run, DataError, deltawire.DeltawireError)


if __name__ == "__main__":
    sys.exit(main())
