"""A decoder of messages of whole tensors, as ranks send them, from the documents alone."""

import math
import struct
from dataclasses import dataclass, field
from dataclasses import replace as changed

import numpy as np
from spec_codec import Codec
from spec_codecs import CODECS, codec_of_spec
from spec_decoder import (
    FLOAT32,
    HALF_CODECS,
    Frame,
    Segment,
    check_identity,
    codec_due,
    decode_segment,
    parse_frame,
)
from spec_hashes import require, xxh64

LOW = (1 << 32) - 1
MOST_IN_A_RUN = 65536  # elements


@dataclass(frozen=True)
class Expected:
    """What the receiver knows beforehand of a message."""

    tensors: dict[str, tuple[int, ...]]  # dims by name, in order
    specs: dict[str, bytes]  # canonical codec specs by name
    params: bytes  # the text that params_hash is of
    identity: dict[str, int]  # world, rank, step, bucket, stage, scale (as bits)
    least: int  # elements of a tensor that is not raw
    dtypes: dict[str, int] = field(default_factory=dict)  # of tensors that are not of float32

    def dtype(self, name: str) -> int:
        """Give a tensor's dtype, by its number."""
        return self.dtypes.get(name, FLOAT32)

    def fields(self) -> dict[str, int]:
        """Give what each frame must carry, apart from seq, in the order of comparison."""
        layout = b"".join(
            struct.pack("<I", len(name.encode())) + name.encode()
            + struct.pack("<QQBQ", 0, math.prod(dims), self.dtype(name), math.prod(dims))
            + struct.pack(f"<B{len(dims) or 1}Q", len(dims) or 1, *(dims or (1,)))
            for name, dims in self.tensors.items()
        )  # fmt: skip
        order = ("world", "rank", "step", "bucket", "stage")
        fields = {"params_hash": xxh64(self.params) & LOW}
        fields |= {key: self.identity[key] for key in order}
        return fields | {"layout_hash": xxh64(layout) & LOW, "scale": self.identity["scale"]}

    def codec_of(self, name: str) -> tuple[Codec, dict[str, str]]:
        """Give a tensor's codec by the policy, with its parameters."""
        count = math.prod(self.tensors[name])
        return codec_of_spec(b"fp32" if count < self.least else self.specs[name])


class Reader:
    """Takes the segments of a message, part after part."""

    def __init__(self, expected: Expected) -> None:
        self.expected = expected
        self.values: dict[str, list[np.ndarray]] = {name: [] for name in expected.tensors}
        counts = ((name, math.prod(dims)) for name, dims in expected.tensors.items())
        self.due = [(part, name, count) for part, (name, count) in enumerate(counts) if count]
        self.begin = 0

    def take(self, frame: Frame) -> None:
        """Check and decode the segments of a frame."""
        for segment in frame.segments:
            require(bool(self.due), "Corrupt", "a segment beyond the last part")
            if segment.parts > 1:
                self._take_run(segment, frame)
            else:
                self._take_one(segment, frame)

    def _take_one(self, segment: Segment, frame: Frame) -> None:
        part, name, count = self.due[0]
        policy, given = self.expected.codec_of(name)
        codec = codec_due(policy, self.expected.dtype(name), segment, frame.version)
        left = count - self.begin
        require(segment.part == part, "Corrupt", "another part than the one that is due")
        as_due = segment.begin == self.begin and segment.count <= left
        require(as_due, "Corrupt", "not where it is due")
        if segment.bare:
            legal = segment.state == 1 and segment.count == count
            require(legal, "Corrupt", "bare, and not legal")
            self.values[name].append(np.zeros(segment.count, "<f4"))
        else:
            require(segment.codec_id == codec.codec_id, "Corrupt", "another codec")
            at_chunk = codec.chunk_elements and segment.count % codec.chunk_elements == 0
            require(segment.count == left or bool(at_chunk), "Corrupt", "a cut inside a chunk")
            self.values[name].append(decode_segment(segment, frame.payload, codec, given))
        self.begin += segment.count
        if self.begin == count:
            self.due, self.begin = self.due[1:], 0

    def _take_run(self, segment: Segment, frame: Frame) -> None:
        run = self.due[: segment.parts]
        require(self.begin == 0 and segment.part == run[0][0], "Corrupt", "not where it is due")
        require(len(run) == segment.parts, "Corrupt", "a run beyond the last part")
        raw = all(count < self.expected.least for _, _, count in run)
        require(raw, "Corrupt", "a run with a part that is not raw")
        dtypes = {self.expected.dtype(name) for _, name, _ in run}
        legal = [CODECS["fp32"]]
        if len(dtypes) == 1 and dtypes <= HALF_CODECS.keys():
            legal.append(CODECS[HALF_CODECS[dtypes.pop()]])
        codecs = [codec for codec in legal if codec.codec_id == segment.codec_id]
        require(bool(codecs), "Corrupt", "another codec")
        whole = segment.count == sum(count for _, _, count in run) <= MOST_IN_A_RUN
        require(whole and len(segment.chunks) == 1, "Corrupt", "not its parts in one chunk")
        values = decode_segment(changed(segment, parts=1), frame.payload, codecs[0], {})
        for _, name, count in run:
            self.values[name].append(values[:count])
            values = values[count:]
        self.due = self.due[segment.parts :]


def decode_message(data: bytes, expected: Expected) -> dict[str, np.ndarray]:
    """Decode a message to flat float32 arrays by name, or raise `DecodeError`."""
    fields = expected.fields()
    reader = Reader(expected)
    at, seq = 0, 0
    while reader.due:
        frame = parse_frame(data[at:])
        check_identity(frame, fields | {"seq": seq})
        reader.take(frame)
        at, seq = at + frame.frame_bytes, seq + 1
    require(at == len(data), "Corrupt", "bytes after the last frame")
    nothing = np.zeros(0, "<f4")
    return {name: np.concatenate([*all_of, nothing]) for name, all_of in reader.values.items()}
