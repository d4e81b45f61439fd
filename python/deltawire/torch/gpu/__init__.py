"""Codecs for tensors on a GPU: kernels in Triton that give the library's bytes.

A twin encodes and decodes where the tensor is: payload, chunk ends, checksums and residual are the
codec's own, bit for bit. `register` uses twins for DDP models on a GPU; other programs may, too::

    twin = deltawire.torch.gpu.twin("3lc:s=1.75")
    part = twin.encode(gradient, residual).collect()
    twin.decode_add(part, total, scale=1 / world).check()

Triton comes with PyTorch's builds for GPUs; it is imported when the first twin is made.
"""

from deltawire.torch.gpu.twins import codecs_with_twin, twin

__all__ = ["codecs_with_twin", "twin"]
