"""MNIST's files for Flower's PyTorch quickstart, and a count of the bytes in its messages."""

import os

import torch
from flwr.app import Message
from torch.utils.data import DataLoader, Dataset

from lab.data.idx import load_image_set
from lab.data.images import data_folder

_TEST_EVERY = 5  # one in five of a client's examples is for testing: the quickstart's 20 %
_sets = None


class _Examples(Dataset):
    """Images as the quickstart's network takes them: (3, 32, 32), from -1 to 1."""

    def __init__(self, images, labels):
        self._images, self._labels = images, labels

    def __len__(self):
        return len(self._labels)

    def __getitem__(self, at):
        image = torch.from_numpy(self._images[at].astype("float32") / 127.5 - 1)
        padded = torch.nn.functional.pad(image, (2, 2, 2, 2), value=-1.0)
        return {"img": padded.expand(3, 32, 32), "label": int(self._labels[at])}


def _images():
    global _sets
    if _sets is None:
        _sets = load_image_set(data_folder() / "mnist")
    return _sets


def load_data(partition_id: int, num_partitions: int, batch_size: int):
    """A client's (train, test) loaders: every `num_partitions`th example, up to as many as the
    environment variable LAB_EXAMPLES says."""
    images, most = _images(), int(os.environ.get("LAB_EXAMPLES", "6000"))
    chosen = range(partition_id, len(images.train_labels), num_partitions)[:most]
    test = list(chosen[::_TEST_EVERY])
    train = sorted(set(chosen) - set(test))
    sets = [_Examples(images.train_images[of], images.train_labels[of]) for of in (train, test)]
    return DataLoader(sets[0], batch_size, shuffle=True), DataLoader(sets[1], batch_size)


def load_centralized_dataset():
    """MNIST's 10,000 test images."""
    images = _images()
    return DataLoader(_Examples(images.test_images, images.test_labels), batch_size=128)


def counted(grid):
    """The same grid, which now prints the bytes of arrays in its messages, in both directions."""
    send, total = grid.send_and_receive, {"down": 0, "up": 0}

    def counting(messages, **settings):
        messages = list(messages)
        total["down"] += sum(map(_array_bytes, messages))
        replies = list(send(messages, **settings))
        total["up"] += sum(map(_array_bytes, replies))
        print(f"array bytes: down {total['down']}, up {total['up']}", flush=True)
        return replies

    grid.send_and_receive = counting
    return grid


def _array_bytes(message: Message) -> int:
    if not message.has_content():
        return 0
    records = message.content.array_records.values()
    return sum(len(array.data) for record in records for array in record.values())
