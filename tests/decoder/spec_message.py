"""A decoder of messages of whole tensors, as ranks send them, from the documents alone."""

import math
import struct
from dataclasses import dataclass

import numpy as np
from spec_codecs import codec_of_spec
from spec_decoder import Segment, check_identity, decode_segment, parse_frame
from spec_hashes import require, xxh64

LOW = (1 << 32) - 1


@dataclass(frozen=True)
class Expected:
    """What the receiver knows beforehand of a message of float32 tensors."""

    tensors: dict[str, tuple[int, ...]]  # dims by name, in order
    specs: dict[str, bytes]  # canonical codec specs by name
    params: bytes  # the text that params_hash is of
    identity: dict[str, int]  # world, rank, step, bucket, stage, scale (as bits)

    def fields(self) -> dict[str, int]:
        """Give what each frame must carry, apart from seq, in the order of comparison."""
        layout = b"".join(
            struct.pack("<I", len(name.encode())) + name.encode()
            + struct.pack("<QQBQ", 0, math.prod(dims), 1, math.prod(dims))
            + struct.pack(f"<B{len(dims) or 1}Q", len(dims) or 1, *(dims or (1,)))
            for name, dims in self.tensors.items()
        )  # fmt: skip
        order = ("world", "rank", "step", "bucket", "stage")
        fields = {"params_hash": xxh64(self.params) & LOW}
        fields |= {key: self.identity[key] for key in order}
        return fields | {"layout_hash": xxh64(layout) & LOW, "scale": self.identity["scale"]}


def check_place(segment: Segment, part: int, due: tuple[int, int], spec: bytes) -> None:
    """Check that a segment is the one of a part that is due: (elements so far, all of them)."""
    begin, count = due
    codec, _ = codec_of_spec(spec)
    left = count - begin
    require(segment.part == part, "Corrupt", "another part than the one that is due")
    require(segment.begin == begin and segment.count <= left, "Corrupt", "not where it is due")
    if segment.bare:
        require(segment.state == 1 and segment.count == count, "Corrupt", "bare, and not legal")
        return
    require(segment.codec_id == codec.codec_id, "Corrupt", "another codec")
    at_chunk = codec.chunk_elements and segment.count % codec.chunk_elements == 0
    require(segment.count == left or bool(at_chunk), "Corrupt", "a cut inside a chunk")


def decode_message(data: bytes, expected: Expected, least: int) -> dict[str, np.ndarray]:
    """Decode a message to flat float32 arrays by name, or raise `DecodeError`."""
    fields = expected.fields()
    counts = {name: math.prod(dims) for name, dims in expected.tensors.items()}
    names = list(counts)
    due = [(part, name) for part, name in enumerate(names) if counts[name]]
    values: dict[str, list[np.ndarray]] = {name: [] for name in names}
    at, seq, begin = 0, 0, 0
    while due:
        frame = parse_frame(data[at:])
        check_identity(frame, fields | {"seq": seq})
        for segment in frame.segments:
            require(bool(due), "Corrupt", "a segment beyond the last part")
            part, name = due[0]
            spec = b"fp32" if counts[name] < least else expected.specs[name]
            check_place(segment, part, (begin, counts[name]), spec)
            codec, given = codec_of_spec(spec)
            values[name].append(
                np.zeros(segment.count, "<f4")
                if segment.bare
                else decode_segment(segment, frame.payload, codec, given)
            )
            begin += segment.count
            if begin == counts[name]:
                due, begin = due[1:], 0
        at, seq = at + frame.frame_bytes, seq + 1
    require(at == len(data), "Corrupt", "bytes after the last frame")
    return {name: np.concatenate([*all_of, np.zeros(0, "<f4")]) for name, all_of in values.items()}
