"""SparseLoCo by its name, in rounds of local steps: its algorithm written out, bit for bit."""

import deltawire
import deltawire.torch
import numpy as np
import torch
import torch.distributed as dist
from local_rounds import Waiting, follow, network, trained
from models import fingerprint
from ranks import results

STEPS, ROUNDS, BLOCK = 3, 5, 4096


def sent_of(tensor: np.ndarray, _) -> np.ndarray:
    """Of each block the 64th part that is largest, in four bins over six standard deviations."""
    x = tensor.ravel()
    positions = []
    for begin in range(0, x.size, BLOCK):
        block = np.abs(x[begin : begin + BLOCK])
        count = max(1, (block.size + 32) // 64)
        largest = np.lexsort((np.arange(block.size), -block))[:count]
        positions += sorted(begin + largest[block[largest] > 0])
    values = x[positions]
    decoded = np.zeros_like(x)
    if values.size <= 4:
        decoded[positions] = values
        return decoded.reshape(tensor.shape)
    wide = values.astype(np.float64)
    center = sum(wide.tolist()) / values.size
    squares = sum(((wide - center) ** 2).tolist())
    width = 6 * np.sqrt(squares / (values.size - 1)) / 4
    bins = np.clip(np.round((wide - center) / width + 2), 0, 3)
    for number in set(bins.tolist()):
        inside = bins == number
        mean = sum(wide[inside].tolist()) / np.count_nonzero(inside)
        decoded[np.array(positions)[inside]] = np.float32(mean)
    return decoded.reshape(tensor.shape)


def rounds(rank, world_size, report):
    model, twin = network(), network()
    inner, theirs = (torch.optim.AdamW(m.parameters(), lr=2e-3) for m in (model, twin))
    trainer = deltawire.torch.LocalSteps(model, inner, "sparseloco", steps=STEPS, min_elements=1)
    by_hand = Waiting(twin, sent_of, 0.95)
    first = by_hand.common[0].clone()
    follow(trainer, by_hand, model, twin, [inner], [theirs], rank, STEPS, ROUNDS)
    moved = int((by_hand.common[0] != first).sum())
    trainer.close()
    dist.barrier()
    return trainer.spec, moved, fingerprint(model)


def test_it_is_the_published_algorithm_bit_for_bit():
    """As torch's SGD with a learning rate of 1 on the mean; AdamW's moments are not touched."""
    values = results(rounds, 4)
    assert len(set(values)) == 1
    spec, moved, _ = values[0]
    codec = "topk:k=0.015625,values=2bit,positions=auto,chunk=4096 with decay=0.95,pull_decay=0.5"
    assert spec == f"gather({codec})"
    assert 200 < moved < 12800


def masks(rank, world_size, report):
    """Whether a trainer zeroes AdamW's momentum, for specs and for what was asked."""
    found = {}
    for spec, asked in [
        ("sparseloco", None),
        ("gather(sparseloco:k=1%)", None),
        (" rest sparseloco", None),
        ("direct( sparseloco )", None),
        ("rest muloco", None),
        ("sparseloco", True),
        ("topk:k=1.5625%,values=2bit,chunk=4096 with decay=0.95", None),
        ("sbc:p=1%,warmup=8", None),  # four rules, all of them sparse
        ("gather(step<8: sbc:p=1%, rest bf16)", None),
    ]:
        model = network()
        inner = torch.optim.AdamW(model.parameters(), lr=2e-3)
        with deltawire.torch.LocalSteps(
            model, inner, spec, steps=99, mask_momentum=asked
        ) as trainer:
            trained(model, inner, rank, 0)
            trainer.step()
            trainer.exchange()
            momentum = inner.state[model[0].weight]["exp_avg"]
            found[str(spec), asked] = bool((momentum == 0).any())
    return found


def test_masks_no_momentum_by_itself():
    (found,) = results(masks, 1)
    assert list(found.values()) == [*[False] * 5, True, True, True, False], found
