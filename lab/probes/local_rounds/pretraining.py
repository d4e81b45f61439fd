"""Weights from which every method begins, as DiLoCo's authors begin with a pretrained network."""

import dataclasses

import torch

from lab.probes.local_rounds.training import Setting, Text, Worker


def pretrained(setting: Setting, seed: int, text: Text) -> dict[str, torch.Tensor]:
    """Weights after the setting's steps of pretraining at the size's rate, each on the batches of
    all workers. These are not the batches on which a method trains."""
    rate, first = setting.size.learning_rate, setting.rounds * setting.steps
    whole = dataclasses.replace(setting, rounds=1, steps=setting.pretraining, learning_rate=rate)
    worker = Worker(whole, seed)
    for step in range(setting.pretraining):
        own = [text.batch(seed, index, first + step) for index in range(setting.workers)]
        worker.step(step, torch.cat(own))
    return worker.network.state_dict()
