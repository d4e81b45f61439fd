"""A member of the soak that trains a network on MNIST by rounds of local steps."""

import os
import time
from collections.abc import Callable

import deltawire.torch
import torch
from torch.nn.functional import cross_entropy

from lab.data.batches import scale
from lab.data.idx import load_image_set
from lab.data.images import data_folder
from lab.models.lenet import LeNet5
from lab.probes.elastic_soak.member import Member, Task

_HIDDEN = 32  # LeNet5's own is 500; 51,532 parameters
_BATCH = 16
_LOCAL_STEPS = 2
_RATE = 0.02
_TEST_IMAGES = 2000


class RoundsMember(Member):
    """DiLoCo with LeNet5; each process draws samples of its own."""

    def __init__(self, say: Callable[[tuple], None], task: Task) -> None:
        super().__init__(say, task)
        torch.set_num_threads(1)
        images = load_image_set(data_folder() / "mnist")
        self._images = torch.from_numpy(images.train_images.copy())
        self._labels = torch.from_numpy(images.train_labels.astype("int64"))
        self._tests = torch.from_numpy(images.test_images[:_TEST_IMAGES].copy())
        self._answers = torch.from_numpy(images.test_labels[:_TEST_IMAGES].astype("int64"))
        self._draw = torch.Generator().manual_seed((task.seed << 20) + os.getpid())

    def take_part(self, session: dict) -> None:
        """Rounds until all are done."""
        torch.manual_seed(0)
        network = LeNet5(_HIDDEN)
        optimizer = torch.optim.SGD(network.parameters(), lr=_RATE)
        self.knock(session)
        with deltawire.torch.ElasticLocalSteps(
            network,
            optimizer,
            self.task.spec,
            steps=_LOCAL_STEPS,
            outer="nesterov",
            weight=lambda steps: float(steps),
            **session,
        ) as trainer:
            self.enter(trainer.session)
            while trainer.round < self.task.steps and not self.leaves:
                time.sleep(self.task.pace / _LOCAL_STEPS)
                picked = torch.randint(len(self._labels), (_BATCH,), generator=self._draw)
                optimizer.zero_grad()
                logits = network(scale(self._images[picked]))
                cross_entropy(logits, self._labels[picked]).backward()
                trainer.step()
                if trainer.local_steps == 0:
                    weights = [each.detach().numpy().tobytes() for each in network.parameters()]
                    self.report(trainer.session, trainer.round - 1, b"".join(weights))
            if trainer.round == self.task.steps:
                self.say(("loss", self._loss(network)))

    @torch.no_grad()
    def _loss(self, network: torch.nn.Module) -> tuple[float, float]:
        """Mean loss and accuracy on test images."""
        logits = network(scale(self._tests))
        loss = cross_entropy(logits, self._answers).item()
        return loss, (logits.argmax(1) == self._answers).float().mean().item()
