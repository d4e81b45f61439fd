"""deltawire.patches on NumPy arrays and PyTorch tensors."""

import numpy as np
import pytest
from deltawire import DeltawireError, DTypeError, InvalidArgumentError, patches
from refusals import raised

torch = pytest.importorskip("torch")


def pair(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Two versions of a matrix; one weight in ten is one unit higher."""
    draw = np.random.default_rng(1)
    old = (100 * draw.standard_normal((300, 50))).astype(dtype)
    new = old.copy()
    bits = new.reshape(-1).view(f"u{old.itemsize}")
    bits[::10] ^= 1
    return old, new


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint16", "int32", "int64"])
def test_every_bit_comes_back(dtype: str) -> None:
    """In another array, and in place."""
    old, new = pair(dtype)
    patch = patches.make(old, new)
    out = np.zeros_like(old)
    patches.apply(patch, old, out)
    assert out.tobytes() == new.tobytes()
    patches.verify(patch, old)
    patches.apply(patch, old)
    assert old.tobytes() == new.tobytes()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2])
def test_tensors(dtype: torch.dtype) -> None:
    """Dtypes that NumPy doesn't know, in place, and parameters."""
    old = torch.randn(3000, generator=torch.Generator().manual_seed(1)).to(dtype)
    new = old.clone()
    new.view(torch.uint8)[::20] ^= 1
    weights = torch.nn.Parameter(old, requires_grad=dtype == torch.bfloat16)
    patch = patches.make(weights, new)
    assert patches.inspect(patch).type == str(dtype).removeprefix("torch.").removesuffix("fn")
    patches.apply(patch, weights)
    assert torch.equal(weights.detach().view(torch.uint8), new.view(torch.uint8))


@pytest.mark.parametrize("name", ["float8_e8m0fnu", "float4_e2m1fn_x2"])
def test_tensors_of_which_the_bytes_are_known(name: str) -> None:
    """One such tensor does not keep a model from being patched."""
    if not hasattr(torch, name):
        pytest.skip(f"PyTorch {torch.__version__} lacks {name}")
    old = torch.arange(99, dtype=torch.uint8).view(getattr(torch, name))
    new = (torch.arange(99, dtype=torch.uint8) + 1).view(old.dtype)
    patch = patches.make(old, new)
    assert patches.inspect(patch).type == "int8"
    patches.apply(patch, old)
    assert torch.equal(old.view(torch.uint8), new.view(torch.uint8))


def test_a_patch_knows_its_weights() -> None:
    """It says which they are, and refuses others without touching them."""
    old, new = pair("float16")
    patch = patches.make(old, new)
    info = patches.inspect(patch)
    assert (info.elements, info.changes, info.chunks) == (15000, 1500, 1)
    assert (info.chunk_elements, info.changed_chunks, info.full_chunks) == (65536, 1, 0)
    assert (info.old_digest, info.new_digest) == (patches.digest(old), patches.digest(new))
    assert patches.inspect(patches.make(old, old)).changed_chunks == 0
    other = np.random.default_rng(2).integers(0, 256, 15000).astype(np.uint8)
    assert (
        patches.inspect(patches.make(old.reshape(-1).view(np.uint8)[:15000], other)).full_chunks
        == 1
    )
    with pytest.raises(DeltawireError, match="was made from weights with the digest") as refused:
        patches.apply(patch, new)
    assert refused.value.code == "Mismatch"
    with pytest.raises(DeltawireError, match="was made from weights with the digest"):
        patches.verify(patch, new)
    assert raised(DeltawireError, patches.apply, patch[:-1], old).code == "Truncated"
    assert np.array_equal(new, pair("float16")[1])


def test_what_is_refused() -> None:
    """Each says why."""
    old, new = pair("float32")
    with pytest.raises(InvalidArgumentError, match="one dtype and shape"):
        patches.make(old, new.T)
    with pytest.raises(DTypeError, match="complex128"):
        patches.make(old.astype(complex), new.astype(complex))
    with pytest.raises(InvalidArgumentError, match="C-contiguous"):
        patches.make(old.T, new.T)
    with pytest.raises(InvalidArgumentError, match="byte order"):
        patches.digest(old.astype(">f4"))
    for tensor in (torch.zeros(2, 3).T, torch.zeros(3, device="meta")):
        with pytest.raises(InvalidArgumentError, match="'old' must be contiguous and on the CPU"):
            patches.make(tensor, tensor)
    with pytest.raises(DTypeError, match=r"'old' is sparse \(torch.sparse_coo\).*to_dense"):
        patches.make(torch.eye(3).to_sparse(), torch.eye(3).to_sparse())
    for given in ([old, [1.0]], [[1.0], new], [memoryview(old), new]):
        with pytest.raises(DTypeError, match="neither a NumPy array"):
            patches.make(*given)
    patch = patches.make(old, new)
    with pytest.raises(InvalidArgumentError, match="'out' is float64"):
        patches.apply(patch, old, np.zeros((300, 50)))
    with pytest.raises(InvalidArgumentError, match="as many bytes as the old ones"):
        patches.apply(patch, old, np.zeros(3, np.float32))
    out = np.zeros_like(old)
    out.flags.writeable = False
    with pytest.raises(InvalidArgumentError, match="can't be written"):
        patches.apply(patch, old, out)
    old.flags.writeable = False
    with pytest.raises(InvalidArgumentError, match="can't be written"):
        patches.apply(patch, old)
