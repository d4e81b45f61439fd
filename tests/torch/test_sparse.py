"""Sparse gradients: of nn.Embedding(sparse=True) and its like."""

import copy
import threading

import deltawire.torch
import numpy as np
import pytest
import torch
from deltawire import _core
from deltawire.errors import DeltawireError
from deltawire.torch.ddp.sparse_gradient import SparseGradient
from models import wrapped
from ranks import attempted, results

ROWS, WIDTH = 3000, 16


class Tables(torch.nn.Module):
    """Two tables, one of them bfloat16, between which DDP's buckets change places."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(7)
        self.words = torch.nn.Embedding(ROWS, WIDTH, sparse=True)
        self.bags = torch.nn.EmbeddingBag(
            ROWS, WIDTH, sparse=True, mode="sum", dtype=torch.bfloat16
        )
        self.out = torch.nn.Linear(WIDTH, 4)

    def forward(self, rows):
        return self.out(self.words(rows).sum(1) + self.bags(rows).float())


def rows_of(rank, step):
    generator = torch.Generator().manual_seed(10 * step + rank)
    rows = torch.randint(0, ROWS, (6, 5), generator=generator)
    rows[:, 0], rows[:, 1] = 7, 11 + rank  # one row that all ranks have, twice; one of this rank
    return rows


def backward(model, rank, step):
    model.zero_grad()
    model(rows_of(rank, step)).square().mean().backward()


def apply(model, rate=0.3):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(parameter.grad, alpha=-rate)


def exact(rank, world_size, report, spec):
    """With raw tensors, which lose nothing, against plain DDP."""
    plain = wrapped(Tables())
    hooked = wrapped(copy.deepcopy(plain.module))
    hook = deltawire.torch.register(hooked, spec, min_elements=10**6)
    for step in range(3):
        for model in (plain, hooked):
            backward(model, rank, step)
        for (name, ours), theirs in zip(hooked.named_parameters(), plain.parameters(), strict=True):
            ours, theirs = ours.grad, theirs.grad
            assert ours.layout == theirs.layout and ours.dtype == theirs.dtype, name
            if ours.is_sparse:
                assert ours.is_coalesced(), name
                theirs = theirs.coalesce()
                assert torch.equal(ours.indices(), theirs.indices()), name
                ours, theirs = ours.values(), theirs.values()
            assert torch.equal(ours, theirs), f"step {step}, {name}"
        for model in (plain, hooked):
            apply(model)
    assert hook.last_error is None and "words" in str(hook.explain())


@pytest.mark.parametrize("spec", ["direct(fastsgd)", "gather(logquant)"])
def test_gradients_are_plain_ddps(spec):
    results(exact, 2, spec)


def coded(rank, world_size, report, staged):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DELTAWIRE_FORCE_STAGING", staged)
        model = wrapped(Tables())
        hook = deltawire.torch.register(
            model, "gather(words*: fastsgd:b=1.02,tau=2047, bags*: fastsgd, rest fp32)"
        )
    alone = Tables()
    for step in range(2):
        alone.load_state_dict(model.module.state_dict())
        shares = []
        for each in range(world_size):
            backward(alone, each, step)
            shares.append(alone.words.weight.grad.coalesce().to_dense())
        backward(model, rank, step)
        mean, expected = model.module.words.weight.grad, sum(shares) / world_size
        sent = torch.unique(torch.cat([rows_of(each, step).ravel() for each in range(world_size)]))
        assert torch.equal(mean.indices()[0], sent), "the rows of the mean"
        scale = max(share.abs().max() for share in shares)
        assert (mean.to_dense() - expected).abs().max() < 0.05 * scale
        apply(model)
    found = model.module.words.weight.detach(), model.module.bags.weight.detach().float()
    record = hook.step_records[-1]
    return [each.numpy() for each in found], record["bytes_sent"], record["raw_bytes"]


def test_only_what_is_there_travels():
    (first, sent, raw), (second, *_), (third, *_) = results(coded, 3, "off")
    for other in (second, third):
        assert all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))
    # Two tables of at most 30 rows to two ranks, and 4 x 16 + 4 dense values.
    assert sent < 2 * (2 * 30 * WIDTH * 3 + 4 * 68 + 400)
    assert raw == 2 * (ROWS * WIDTH * (4 + 2) + 4 * 68)


def test_staged_they_are_the_same():
    plain, staged = results(coded, 2, "off"), results(coded, 2, "on")
    for (ours, *bytes_), (theirs, *others) in zip(plain, staged, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))
        assert bytes_ == others


REFUSED = {
    "3lc": "direct(3lc",
    "gather(topk)": "gather(topk",
    "ring(gcomp)": "ring(gcomp",
    "gather(fastsgd:residual=on)": "residual=on",
    "gather(step<5: fastsgd, rest fp32)": "in step 5",
    "gather(words*: fastsgd with momentum=0.9, rest fastsgd)": "with momentum=0.9",
}


def refused(rank, world_size, report):
    texts = [
        attempted(lambda s=spec: deltawire.torch.register(wrapped(Tables()), s)) for spec in REFUSED
    ]
    frozen = wrapped(Tables())
    frozen.module.out.bias.requires_grad_(False)
    texts.append(attempted(lambda: deltawire.torch.register(frozen, "gather(fastsgd)")))
    return texts


def test_codecs_that_take_no_pairs_are_refused_at_once():
    for texts in results(refused, 2):
        *specs, frozen = texts
        for (kind, text, _), part in zip(specs, REFUSED.values(), strict=True):
            assert kind == "InvalidArgumentError" and part in text, text
            assert "has sparse gradients" in text and "fastsgd" in text and "sparse=False" in text
            assert "topk, " not in text  # keeps a residual
        assert frozen[0] == "InvalidArgumentError" and "freeze none before register" in frozen[1]


def reduced(gradient, spec="gather(fastsgd)", min_elements=10**6):
    """The mean over one rank, through a session; raises its error."""
    listener = _core.Listener("127.0.0.1", 0)
    mesh = _core.Mesh(0, [listener.endpoint], b"\x07" * 32, "")
    options = _core.ReducerOptions(min_elements, "exact")
    session = _core.Session(listener, mesh, spec, options)
    sparse, over, errors = SparseGradient("w", gradient), threading.Event(), []

    def complete(error, _):
        errors.append(error)
        over.set()

    session.submit([sparse.at], _core.Step(0, 0, True), 20_000, complete)
    assert over.wait(20)
    session.close()
    if errors[0] is not None:
        raise errors[0]
    return sparse.mean()


@pytest.mark.parametrize("dense", [(), (4,), (2, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_shapes_of_any_kind_come_back(dense, dtype):
    indices = torch.tensor([[2, 0, 2, 2], [1, 4, 1, 3]])
    values = torch.arange(1, 5 * 6 + 1).to(dtype)[: 4 * int(np.prod(dense))].view(4, *dense)
    gradient = torch.sparse_coo_tensor(
        indices, values, (3, 5, *dense), dtype=dtype, check_invariants=False
    )
    mean, expected = reduced(gradient), gradient.coalesce()
    assert mean.dtype == dtype and mean.is_coalesced()
    assert torch.equal(mean.indices(), expected.indices())
    assert torch.equal(mean.values(), expected.values())


def test_nothing_at_all_comes_back_as_nothing():
    empty = torch.sparse_coo_tensor(
        torch.empty((1, 0), dtype=torch.int64), torch.empty((0, 4)), (9, 4), check_invariants=False
    )
    mean = reduced(empty)
    assert mean.shape == (9, 4) and mean._nnz() == 0


def test_a_mean_that_float16_cannot_say_is_an_error():
    largest = torch.full((1, 4), 65504.0, dtype=torch.float16)
    gradient = torch.sparse_coo_tensor(torch.tensor([[5]]), largest, (9, 4), check_invariants=False)
    with pytest.raises(DeltawireError, match="'w': a mean is 65536, beyond the largest float16"):
        reduced(gradient, "gather(logquant)", 0)  # which rounds to powers of two
    assert torch.equal(reduced(gradient).values(), largest)


def test_layouts_without_keys_are_refused():
    with pytest.raises(TypeError, match=r"'w' is torch.sparse_csr"):
        SparseGradient("w", torch.eye(3).to_sparse_csr())
