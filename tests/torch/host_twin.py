"""A device played on the host: tensors are the CPU's, and a codec's twin is the library's codec, by
the C interface. `register(twins=HostTwin)` trains on it."""

import ctypes
import pathlib

import deltawire
import torch
from deltawire.errors import make_error
from deltawire.torch.gpu.parts import Decoding, EncodedPart, Encoding
from spec_hashes import crc32c

LIBRARY = pathlib.Path(deltawire.__file__).parents[2] / "lib" / "libdeltawire.so"
DTYPES = {torch.float32: 1, torch.bfloat16: 2, torch.float16: 3}
CODES = {4: "NotFinite", 5: "Range", 7: "Truncated", 8: "Corrupt"}


class Error(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_int32),
        ("suspect", ctypes.c_int32),
        ("last_committed_step", ctypes.c_uint64),
        ("message", ctypes.c_char * 1008),
    ]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("values", ctypes.c_void_p),
        ("count", ctypes.c_uint64),
        ("dtype", ctypes.c_int32),
        ("dim_count", ctypes.c_uint32),
        ("dims", ctypes.c_void_p),
        ("significance", ctypes.c_void_p),
        ("reserved", ctypes.c_uint64 * 3),
    ]


class Part(ctypes.Structure):
    _fields_ = [
        ("payload", ctypes.c_void_p),
        ("payload_bytes", ctypes.c_uint64),
        ("chunk_ends", ctypes.c_void_p),
        ("chunks", ctypes.c_uint32),
        ("scalar", ctypes.c_uint32),
        ("scalar2", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    ]


def as_tensor(values: torch.Tensor) -> Tensor:
    return Tensor(values=values.data_ptr(), count=values.numel(), dtype=DTYPES[values.dtype])


class HostTwin:
    """What `deltawire.torch.gpu.twin` gives, on the host."""

    slot_bytes = 0  # it codes one part at a time
    encodings = 0  # made in this process, of all twins
    decodings = 0

    def __init__(self, spec: str) -> None:
        self._library = ctypes.CDLL(str(LIBRARY))
        self._codec = ctypes.c_void_p()
        self._call("open", spec.encode(), ctypes.byref(self._codec))

    def _call(self, name: str, *arguments) -> None:
        error = Error()
        function = getattr(self._library, f"deltawire_codec_{name}")
        if function(*arguments, ctypes.byref(error)):
            code = CODES.get(error.code, "InvalidArgument")
            raise make_error(code, error.message.decode())

    def takes(self, dtype: torch.dtype) -> bool:
        return dtype in DTYPES

    def encode(self, values, residual=None, after=None, significance=None) -> Encoding:
        HostTwin.encodings += 1
        tensor = as_tensor(values)
        if significance is not None:
            tensor.significance = significance.data_ptr()
        count, bytes_ = ctypes.c_uint32(), ctypes.c_uint64()
        size = (ctypes.byref(tensor), ctypes.byref(bytes_), ctypes.byref(count))
        self._call("bounds", self._codec, *size)
        payload = torch.empty(bytes_.value, dtype=torch.uint8)
        ends = torch.empty(max(count.value, 1), dtype=torch.int32)
        part = Part(payload.data_ptr(), len(payload), ends.data_ptr(), len(ends))
        left = None
        if residual is not None:
            left = after.copy_(residual).data_ptr()
        refused = None
        try:
            where = (ctypes.c_void_p(left), ctypes.c_uint64(0), ctypes.byref(part))
            self._call("encode", self._codec, ctypes.byref(tensor), *where)
        except deltawire.DeltawireError as cause:
            refused, part.chunks = cause, 0

        def refuse(most: int, first: int) -> None:
            if refused is not None:
                raise refused

        used = ends[: part.chunks].tolist()
        begins = [0, *used[:-1]] if used else []
        bytes_of = payload.numpy().tobytes()
        sums = [crc32c(bytes_of[b:e], 0) for b, e in zip(begins, used, strict=True)]
        signed = [(each + 2**31) % 2**32 - 2**31 for each in (*sums, part.scalar, part.scalar2)]
        status = torch.tensor([0, *signed[-2:], part.chunks], dtype=torch.int32)
        sums = torch.tensor(signed[:-2], dtype=torch.int32)
        return Encoding(payload, ends.long(), sums, status, refuse)

    def decode(self, part: EncodedPart, out: torch.Tensor, scale: float = 1.0) -> Decoding:
        return self._into(part, out, scale, 0)

    def decode_add(self, part: EncodedPart, out: torch.Tensor, scale: float = 1.0) -> Decoding:
        return self._into(part, out, scale, 1)

    def _into(self, part, out, scale, into) -> Decoding:
        HostTwin.decodings += 1
        ends = torch.tensor(part.ends, dtype=torch.int32)
        size = part.payload.numel()
        given = Part(part.payload.data_ptr(), size, ends.data_ptr(), len(ends), *part.scalars)
        where = (ctypes.byref(as_tensor(out)), into, ctypes.c_float(scale))
        self._call("decode", self._codec, ctypes.byref(given), *where)
        return Decoding(torch.zeros(1, dtype=torch.int32), "host")


# What `twins=` gets: the CPU codes, and, where the library is built, the played device.
WAYS = (False, HostTwin) if LIBRARY.is_file() else (False,)
