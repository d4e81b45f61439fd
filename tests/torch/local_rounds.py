"""Rounds of local steps written out, without deltawire: what LocalSteps has to equal with fp32; and
its states, taken apart."""

import functools
import io

import numpy as np
import torch
import torch.distributed as dist
from deltawire.torch.local import state as local_state
from models import fingerprint, steps_by

NESTEROV = functools.partial(torch.optim.SGD, lr=0.7, momentum=0.9, nesterov=True)


class WrittenOut:
    """A rank's weights and the common ones, exchanged by all_gather.

    Args:
        model: a twin of the trainer's.
        parts: the fragments, as slices of its parameters.
        outer: makes an optimizer of the common weights, or None.
        delayed: whether an exchange is applied at the next one's begin.
        overlap: after how many steps it is, at the latest then; 0: as `delayed` says.
        mixing: what is kept of the rank's own weights then; None: its movement since the begin.
    """

    def __init__(self, model, parts, outer=None, delayed=False, overlap=0, mixing=None):
        self.parameters = list(model.parameters())
        self.parts = parts
        self.common = [p.detach().clone() for p in self.parameters]
        self.outer = outer(self.common) if outer else None
        self.delayed = delayed or overlap > 0
        self.overlap, self.mixing = overlap, mixing
        self.under_way = None
        self.steps = 0  # since the exchange under way has begun

    def stepped(self):
        """A local step was taken."""
        self.steps += 1
        if self.steps == self.overlap:
            self.finish()

    def exchange(self, fragment):
        """Of one fragment."""
        self.finish()
        self.steps = 0
        part = self.parts[fragment]
        own = [p.detach().clone() for p in self.parameters[part]]
        changes = [p - common for p, common in zip(own, self.common[part], strict=True)]
        self.under_way = part, [mean_of(change) for change in changes], own
        if not self.delayed:
            self.finish()

    @torch.no_grad()
    def finish(self):
        """Applies what is under way: the rank's own progress since then stays on top."""
        if self.under_way is None:
            return
        part, means, began = self.under_way
        self.under_way = None
        common = self.common[part]
        if self.outer:
            for weight, mean in zip(common, means, strict=True):
                weight.grad = -mean
            self.outer.step()
            self.outer.zero_grad()
        else:
            for weight, mean in zip(common, means, strict=True):
                weight += mean
        for weight, start, parameter in zip(common, began, self.parameters[part], strict=True):
            if not self.delayed or self.steps == 0:
                parameter.copy_(weight)
            elif self.mixing is None:
                parameter.copy_(weight + (parameter - start))
            else:  # alpha * own + (1 - alpha) * common
                parameter.copy_(weight + self.mixing * (parameter - weight))


class Waiting:
    """A rank's weights and the common ones, exchanged by all_gather: e = decay e + change; what is
    sent leaves e; then the outer step, or common += mean of what was sent.

    Args:
        model: a twin of the trainer's.
        sent_of: (e, the common weights) -> what is sent, as NumPy arrays of one shape.
        outer: makes an optimizer of the common weights, or None.
    """

    def __init__(self, model, sent_of, decay=1.0, outer=None):
        self.parameters, self.sent_of = list(model.parameters()), sent_of
        self.common = [torch.nn.Parameter(p.detach().clone()) for p in self.parameters]
        self.outer, self.decay = outer and outer(self.common), np.float32(decay)
        self.waits = [np.zeros(p.shape, np.float32) for p in self.parameters]

    @torch.no_grad()
    def exchange(self):
        for i, (parameter, common) in enumerate(zip(self.parameters, self.common, strict=True)):
            summed = self.decay * self.waits[i] + (parameter - common).numpy()
            sent = self.sent_of(summed, common.detach().numpy())
            self.waits[i] = summed - sent
            mean = mean_of(torch.from_numpy(sent))
            if self.outer:
                common.grad = -mean
            else:
                common += mean
        if self.outer:
            self.outer.step()
        torch._foreach_copy_(self.parameters, self.common)


def network(width=200):
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Linear(64, width), torch.nn.Tanh(), torch.nn.Linear(width, 50, bias=False)
    )


def follow(trainer, by_hand, model, twin, optimizers, theirs, rank, steps, rounds):
    """Rounds of so many steps: the model's weights after each are the twin's, by hand."""
    for step in range(rounds * steps):
        trained(model, optimizers[0], rank, step)
        trainer.step()
        trained(twin, theirs[0], rank, step)
        for optimizer in theirs:
            optimizer.step()
        if step % steps == steps - 1:
            by_hand.exchange()
            assert fingerprint(model) == fingerprint(twin), f"after step {step}"


def train(trainer, model, rank, steps):
    steps_by(trainer, model, rank, steps)


def saved(state):
    """A file, as a checkpoint goes."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return file


def mean_of(change):
    """In the order in which an owner adds up, on the CPU."""
    device, change = change.device, change.cpu()
    shares = [torch.empty_like(change) for _ in range(dist.get_world_size())]
    dist.all_gather(shares, change)
    scale, mean = np.float32(1) / np.float32(len(shares)), np.zeros(change.shape, np.float32)
    for share in shares:
        mean = mean + scale * share.numpy()
    return torch.from_numpy(mean).to(device)


def flat_of(trainer):
    """All that a trainer's state has, by name."""
    return local_state.flat_form(trainer.state_dict(), trainer.rank)


def changed(state, rank, /, without=(), **changes):
    """Another state, as a checkpoint has it."""
    flat = {**local_state.flat_form(state, rank), **changes}
    return local_state.saved_form({key: flat[key] for key in flat if key not in without})


def trained(model, optimizer, rank, step):
    """Gradients of a batch of the rank's and the step's own, for 64 inputs and 50 outputs."""
    generator = torch.Generator().manual_seed(1000 * rank + step)
    model.zero_grad()
    x, y = torch.randn(8, 64, generator=generator), torch.randn(8, 50, generator=generator)
    (model(x) - y).square().mean().backward()
