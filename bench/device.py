"""Speed of the codecs' twins on a GPU, as a share of a copy of the same tensor on the device.

    PYTHONPATH=build/release/python python bench/device.py
    PYTHONPATH=build/release/python python bench/device.py --elements 1048576 --specs 3lc sbc:p=1%

Before a twin is timed, its payload and residual are compared with the library's codec. Times are
the device's: it is kept busy until all is launched. What a part costs from Python is shown for one
of one element. The payload is on the device already. Medians.
"""

import argparse
import dataclasses
import statistics
import sys

import deltawire
import numpy as np
import torch
from deltawire.torch import gpu

SPECS = (
    *("fp32", "bf16", "fp16", "fp8", "fp4", "blockint", "int8"),
    *("3lc:s=1.75,mode=paper", "3lc:s=1", "topk:k=1%", "topk:k=1%,values=int8", "sbc:p=1%"),
)
SEED = 20260101


CYCLES = 20_000_000  # about 10 ms, in which Python launches what is timed


def milliseconds(run, repeats: int = 20, busy: int = 0) -> float:
    """The median time of a call, by events, after two calls to warm up. busy: cycles that the
    device has something else to do."""
    for _ in range(2):
        run()
    torch.cuda.synchronize()
    times = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        if busy:
            torch.cuda._sleep(busy)
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def of_device(run) -> float:
    """The median time that a call takes the device."""
    return milliseconds(run, busy=CYCLES)


def must_equal(spec: str, twin, values: torch.Tensor) -> None:
    """Ends the program unless payload and residual are the library's."""
    channel = deltawire.Channel(spec, min_elements=0)
    message = bytes(channel.encode({"t": values.cpu().numpy()}))
    kept = np.asarray(channel.residual("t"))
    residual = torch.zeros_like(values)
    part = twin.encode(values, residual if kept.size else None).collect()
    same = bytes(part.payload.cpu().numpy()) in message
    if kept.size:
        same = same and np.array_equal(residual.cpu().numpy().view(np.uint32), kept.view(np.uint32))
    if not same:
        sys.exit(f"{spec}: the twin's payload or residual is not the codec's")


def row(spec: str, values: torch.Tensor, copied: float) -> str:
    twin = gpu.twin(spec)
    must_equal(spec, twin, values[: 1 << 16])
    residual = torch.zeros_like(values)
    out = torch.zeros_like(values)
    part = twin.encode(values).collect()
    part = dataclasses.replace(part, payload=part.payload.cuda())
    one = values[:1].clone()
    cells = [
        of_device(lambda: twin.encode(values)),
        of_device(lambda: twin.encode(values, residual)),
        of_device(lambda: twin.decode(part, out)),
        of_device(lambda: twin.decode_add(part, out, 0.5)),
    ]
    shares = " | ".join(f"{copied / each:.3f}" for each in cells)
    return f"| `{spec}` | {shares} | {milliseconds(lambda: twin.encode(one)):.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--elements", type=int, default=1 << 26, help="float32 (default: 2^26)")
    parser.add_argument("--specs", nargs="+", default=SPECS, metavar="SPEC")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("PyTorch sees no GPU here (torch.cuda.is_available() is false)")
    torch.manual_seed(SEED)
    values = torch.randn(given.elements, device="cuda")
    target = torch.empty_like(values)
    copied = of_device(lambda: target.copy_(values))
    speed = 8 * given.elements / copied / 1e6
    print(f"{torch.cuda.get_device_name()}, {given.elements:,} float32 of a normal distribution")
    print(f"a copy on the device: {copied:.3f} ms, {speed:,.0f} GB/s read and written")
    print("| codec | encode | encode, fed | decode | decode and add | launches, ms |")
    print("|---|---|---|---|---|---|")
    for spec in given.specs:
        print(row(spec, values, copied), flush=True)
    most = max(1, given.elements // 100)
    rival = of_device(lambda: values.abs().topk(most))
    print(f"| `torch.topk`, 1 % | {copied / rival:.3f} | | | | |")


if __name__ == "__main__":
    main()
