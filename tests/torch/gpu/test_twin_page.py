"""The example of docs/reference/gpu.md."""

import re
from pathlib import Path

import torch

PAGE = Path(__file__).parents[3] / "docs/reference/gpu.md"


def test_example(device):
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    torch.manual_seed(0)
    gradient = torch.randn(1000, device=device)
    place = {"gradient": gradient, "total": torch.zeros(1000, device=device), "world": 2}
    exec(example, place)
    sent = 2 * place["total"]
    assert sent.count_nonzero() > 0
    torch.testing.assert_close(sent + place["residual"], gradient)


def test_codecs_of_the_page_are_those_with_a_twin():
    from deltawire.torch import gpu

    section = PAGE.read_text().split("## What runs where")[1].split("##")[0]
    rows = re.findall(r"^\| (.*?) \|", section, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert tuple(named) == gpu.codecs_with_twin()
