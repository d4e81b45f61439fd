"""Many parts by one launch of each kernel: what they give is what one after another gives, and how
many launches and waits that takes."""

import contextlib
import re

import numpy as np
import pytest
import torch
from deltawire import DeltawireError, canonical_spec
from deltawire.torch.core.device.parts import DeviceParts

KINDS = {torch.float32: 1, torch.bfloat16: 2, torch.float16: 3}
COUNTS = [5, 40, 320, 1, 42000, 333, 1000]
FEW = [5, 40, 320, 1, 700, 333, 100]
SPECS = [["int8"], ["3lc:s=1.75"], ["3lc:s=1,mode=paper", "fp32"], ["bf16", "fp16", "int8"]]
CASES = [(specs, dtype, dtype == torch.float32) for specs in SPECS for dtype in KINDS]
# Of these a dtype each: every kernel loads and scales values by the same functions.
OTHERS = [
    (["topk:k=2%,values=int8"], torch.float16, False),
    (["sbc:p=2%", "topk:k=1%,values=bf16"], torch.float32, True),
    (["fp8", "fp4:format=e3m0"], torch.bfloat16, False),
    (["blockint:bits=4,block=4096", "fp8:format=e5m2"], torch.float32, True),
    (["int8", "topk:k=3%,values=fp32"], torch.float16, False),
]


def synchronize():
    """Parts are coded on a stream of their own, and the tests' tensors made on another."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


class OneByOne:
    """A twin that does not code parts together."""

    slot_bytes = 0

    def __init__(self, twin):
        self.of = twin

    def __getattr__(self, name):
        return getattr(self.of, name)


class Device:
    """Parts with their memory on a device."""

    def __init__(self, device, specs, dtype, apart=()):
        """apart: what codecs begin with whose parts don't go together; an empty text for all."""
        from deltawire.torch.gpu.twins import twin_of_canonical

        def make(spec):
            twin = twin_of_canonical(spec)
            return OneByOne(twin) if spec.startswith(apart) else twin

        self.specs = [re.fullmatch(r"\w+\(([^() ]*)\)", canonical_spec(each))[1] for each in specs]
        self.parts = DeviceParts(device, make, 60.0, 0)
        generator = torch.Generator().manual_seed(1)
        made = [torch.randn(count, generator=generator) for count in COUNTS]
        made[2].zero_()
        made[4][::3] = 0
        made[6][::7] = -0.0  # whose sign a codec may carry
        self.values = [each.to(device, dtype) for each in made]
        left = [torch.randn(count, generator=generator) for count in COUNTS]
        self.before = [each.to(device) for each in left]
        self.after = [torch.zeros_like(each) for each in self.before]
        self.slots = [torch.ones_like(each) for each in self.before]
        for each in (*self.values, *self.before, *self.after, *self.slots):
            self.parts.adopt(each)

    def encode(self, factors=None):
        """(chunks, sums, row of `Encoded.parts`, error) of each part."""
        rows = [
            (
                *(i % len(self.specs), values.data_ptr(), len(values), KINDS[values.dtype]),
                *(each[i].data_ptr() if i % 3 else 0 for each in (self.before, self.after)),
                (0, 2, 3)[i // 3 % 3] if not i % 3 else 0,
                0,
            )
            for i, values in enumerate(self.values)
        ]
        synchronize()
        factors = np.array(factors or [1.0] * len(rows))
        found = {}
        for each in self.parts.encode(self.specs, np.array(rows, np.int64), factors):
            errors = dict(each.errors)
            for number, *row in each.parts.tolist():
                first, chunks = row[3:5]
                bounds = list(zip(each.begins, each.sizes, strict=True))[first : first + chunks]
                payload = [bytes(each.payload[b : b + size]) for b, size in bounds]
                sums = each.sums[first : first + chunks].tolist()
                encoded, zeros, carries, _, _, *scalars = row
                flags = (encoded, zeros if number % 3 else None, None if number % 3 else carries)
                error = errors.get(number)
                text = (error.code, str(error)) if error else None
                found[number] = (payload, sums, flags, scalars, text) if encoded else (flags, text)
        return [found[number] for number in range(len(rows))]

    def decode(self, encoded, add, scale, spoil=lambda rows, ends, room: None):
        """Decodes what `encode` gave; the errors that are known at once."""
        rows, ends, payloads, behind = [], [], [], 0
        for i, (chunks, _, _, scalars, _) in enumerate(encoded):
            mine = np.cumsum([len(each) for each in chunks]).tolist()
            slot = self.slots[i]
            which = (i % len(self.specs), slot.data_ptr(), len(slot))
            rows.append((*which, *scalars, behind, len(chunks)))
            payloads.append((behind, b"".join(chunks)))
            behind += -(-mine[-1] // 16) * 16
            ends += mine
        rows, ends = np.array(rows, np.int64), np.array(ends, np.int64)
        spoil(rows, ends, None)
        room = self.parts.room(self.specs, rows, ends)
        for begin, payload in payloads:
            room[begin : begin + len(payload)] = np.frombuffer(payload, np.uint8)
        spoil(None, None, room)
        errors = [(at, error.code, str(error)) for at, error in self.parts.decode(add, scale)]
        synchronize()
        return errors

    def refused(self):
        """What the device has found: (part, code) or None."""
        decoder = self.parts._decoder
        found = decoder.refused(decoder.errors().cpu().numpy())
        synchronize()
        return found and (found[0], found[1].code)


def both(device, specs, dtype):
    return Device(device, specs, dtype), Device(device, specs, dtype, apart="")


def named(value):
    return " ".join(value) if isinstance(value, list) else None


@pytest.fixture
def few(monkeypatch):
    """Small parts, where the interpreter takes long."""
    monkeypatch.setattr("test_part_batches.COUNTS", FEW)


@pytest.mark.parametrize(("specs", "dtype", "scaled"), OTHERS, ids=named)
def test_a_batch_of_small_parts(device, few, specs, dtype, scaled):
    test_a_batch_is_its_parts(device, specs, dtype, scaled)


def test_parts_of_several_chunks(device, monkeypatch):
    monkeypatch.setattr("test_part_batches.COUNTS", [65569, 65569, 40, 1, 50, 8, 40])
    test_a_batch_is_its_parts(device, ["fp8", "int8"], torch.float32, scaled=False)


@pytest.mark.parametrize(("specs", "dtype", "scaled"), CASES, ids=named)
def test_a_batch_is_its_parts(device, specs, dtype, scaled):
    together, alone = both(device, specs, dtype)
    factors = [1.0, 0.5, 1.0, 1.0, 3.0, 1.0, 1.0] if scaled else None
    encoded = together.encode(factors)
    assert encoded == alone.encode(factors)
    assert all(map(torch.equal, together.after, alone.after))
    for add, scale in ((False, 1.0), (True, 0.25)):
        for each in (together, alone):
            assert each.decode(encoded, add, scale) == [] and each.refused() is None
        assert all(map(torch.equal, together.slots, alone.slots))


def spoiled(device, specs, dtype, parts, value):
    made = both(device, specs, dtype)
    for each in made:
        for part in parts:
            each.values[part][3] = value
    return [each.encode() for each in made]


@pytest.mark.parametrize("specs", SPECS + [each for each, *_ in OTHERS[:4]], ids=" ".join)
def test_a_batch_refuses_what_its_parts_refuse(device, few, specs):
    found = spoiled(device, specs, torch.float32, (4,), float("nan"))
    assert found[0] == found[1]
    assert (found[0][4][-1] is None) == (specs[4 % len(specs)] in ("fp32", "bf16"))
    together, alone = both(device, specs, torch.float32)
    factors = [1.0] * 4 + [1e39] + [1.0] * 2
    assert together.encode(factors) == alone.encode(factors)


def test_what_16_bits_carry(device, monkeypatch):
    monkeypatch.setattr("test_part_batches.COUNTS", [4] * 7)
    largest = [float.fromhex("0x1.fefffep127"), float.fromhex("0x1.ffp127")]  # of bfloat16, beyond
    for value in (65519.0, 65520.0, *largest, float("inf"), float("nan")):
        together, alone = spoiled(device, ["fp32"], torch.float32, (3, 6), value)
        assert together == alone
        flags = [together[i][2][-1] for i in (3, 6)]
        assert flags == [value != largest[1], value == 65519.0], value


def test_3lc_beyond_float32_is_refused(device):
    found = spoiled(device, ["3lc:s=1.75"], torch.float32, (4,), 3e38)
    assert found[0] == found[1] and found[0][4][-1][0] == "Range"


def test_what_a_device_finds_is_kept_until_it_is_asked_for(device):
    made = Device(device, ["int8"], torch.float32)
    encoded = made.encode()

    def spoil(rows, ends, room):
        if room is not None:
            room[16 + 39] = 0x80  # of part 1: a code that no encoder writes

    assert made.decode(encoded, True, 1.0) == []
    assert made.decode(encoded, True, 1.0, spoil) == []
    assert made.refused() == (len(COUNTS) + 1, "Corrupt")
    assert made.refused() is None
    assert made.decode(encoded, True, 1.0, spoil) == []
    made.parts.forget_decoded()  # the step was reverted
    assert made.decode(encoded, True, 1.0) == [] and made.refused() is None


@pytest.mark.parametrize(
    "spec", ["int8", "3lc:s=1.75", "fp16", "topk:k=2%,values=int8", "sbc:p=2%", "fp8"]
)
def test_what_the_host_can_see_is_refused_at_once(device, few, spec):
    def spoil(column):
        def now(rows, ends, room):
            if rows is None:
                return
            if column == "chunks":
                rows[4, 6] += 1
                rows[5, 6] -= 1
            elif column == "end":
                ends[-3] = 0
            elif column == "-0":
                rows[1, 3] = 0x80000000
            else:
                rows[1, 3 if column == "scalar" else 4] = 0x7F900000

        return now

    made = both(device, [spec], torch.float32)
    encoded = made[1].encode()
    columns = ("scalar", "-0", "second scalar", "chunks", "end")
    for column in columns:
        found = [each.decode(encoded, False, 1.0, spoil(column)) for each in made]
        assert found[0] == found[1] and found[0], column


@pytest.mark.parametrize("spec", ["topk:k=20%,values=int8", "sbc:p=20%", "fp8", "fp4"])
def test_a_batch_finds_what_is_wrong_with_one_of_its_parts(device, few, spec):

    def spoil(rows, ends, room):
        if room is not None:
            room[0] = 0xFF  # of part 0: no code, no step, or bits behind its elements

    together, alone = both(device, [spec], torch.float32)
    encoded = alone.encode()
    ((part, code, _),) = alone.decode(encoded, False, 1.0, spoil)
    assert together.decode(encoded, False, 1.0, spoil) == []
    assert together.refused() == (part, code) == (0, "Corrupt")
    assert all(map(torch.equal, together.slots[1:], alone.slots[1:]))


@pytest.mark.timeout(600)  # the interpreter takes positions one by one
def test_chunks_of_positions(device, monkeypatch):
    monkeypatch.setattr("test_part_batches.COUNTS", [40, 17000, 40, 1, 300, 40, 40])

    def spoil(rows, ends, room):
        if rows is not None:
            chunk.append(int(rows[1, 5] + ends[1]))  # where the second chunk of part 1 begins
        if room is not None:
            room[chunk[0] + 3 : chunk[0] + 7] = 0  # its first position

    chunk = []
    together, alone = both(device, ["topk:k=0.99,values=bf16"], torch.float32)
    encoded = together.encode()
    assert encoded == alone.encode() and len(encoded[1][0]) == 2
    for each in (together, alone):
        assert each.decode(encoded, True, 0.5) == [] and each.refused() is None
    assert all(map(torch.equal, together.slots, alone.slots))
    assert together.decode(encoded, True, 1.0, spoil) == []
    assert together.refused() == (1, "Corrupt")


@pytest.mark.parametrize("spec", ["topk:k=2%,values=int8", "sbc:p=2%"])
def test_a_sample_that_misleads_in_some_parts(device, spec, monkeypatch):
    from deltawire.torch.gpu.kernels import selection

    monkeypatch.setattr("test_part_batches.COUNTS", [40, 700, 64, 1, 650, 333, 100])
    monkeypatch.setattr(selection, "SAMPLE", 64)
    monkeypatch.setattr(selection, "sample_rank", lambda n, k: 1 if n > 600 else k + 4)
    together, alone = both(device, [spec], torch.float32)
    assert together.encode() == alone.encode()
    assert all(map(torch.equal, together.after, alone.after))


def test_kernels_run_on_the_device_of_their_tensors(device, monkeypatch):
    """Whichever is the current one."""
    from deltawire.torch.gpu import twin
    from deltawire.torch.gpu.kernels import part_tables

    current, launched = [], []

    @contextlib.contextmanager
    def made_current(tensor):
        current.append(tensor.data_ptr())
        yield
        current.pop()

    kind = type(part_tables.look)
    run = kind.run
    monkeypatch.setattr(torch.cuda, "device_of", made_current)
    monkeypatch.setattr(kind, "run", lambda *a, **k: launched.append(current[-1]) or run(*a, **k))
    values, out = torch.ones(40, device=device), torch.zeros(40, device=device)
    part = twin("int8").encode(values).collect()
    twin("int8").decode(part, out).check()
    assert launched == [values.data_ptr()] * 3 + [out.data_ptr()]


LAUNCHES = {"int8": (3, 1), "fp32": (3, 1), "3lc:s=1.75": (7, 3), "3lc:s=1,mode=paper": (4, 3)}
LAUNCHES |= {"fp8": (3, 1), "topk:values=int8": (19, 5), "sbc": (21, 4)}


@pytest.mark.parametrize("spec", LAUNCHES)
def test_launches_and_waits_of_a_bucket(device, spec, monkeypatch):
    """Many tensors: as many launches as one takes, one wait to encode, none to decode."""
    from deltawire.torch.gpu.kernels import part_tables

    launches, waits = [], []
    kind = type(part_tables.look)
    run, to_host = kind.run, DeviceParts.to_host
    monkeypatch.setattr(kind, "run", lambda *a, **k: launches.append(1) or run(*a, **k))
    monkeypatch.setattr(DeviceParts, "to_host", lambda *a: waits.append(1) or to_host(*a))
    monkeypatch.setattr("test_part_batches.COUNTS", [40] * 30)
    made = Device(device, [spec], torch.float32)
    encoded = made.encode()
    assert (len(launches), len(waits)) == (LAUNCHES[spec][0], 1)
    del launches[:]
    assert made.decode(encoded, True, 0.5) == []
    assert (len(launches), len(waits)) == (LAUNCHES[spec][1], 1)


def test_a_twin_without_batches_among_others(device):
    specs = ["int8", "fp8", "fp32"]
    together = Device(device, specs, torch.float32, apart="fp8")
    alone = Device(device, specs, torch.float32, apart="")
    encoded = together.encode()
    assert encoded == alone.encode()
    for each in (together, alone):
        assert each.decode(encoded, True, 0.5) == []
    assert all(map(torch.equal, together.slots, alone.slots))
    with pytest.raises(DeltawireError):
        together.parts.twin("qsgd")
