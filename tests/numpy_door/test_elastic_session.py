"""An elastic session's example in the guide, and what it refuses."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import deltawire
import numpy as np
import pytest
from elastic_steps import ELEMENTS
from member_door import members_at
from members import LIMIT, SECRET, session_of, settings
from ports import kept_port

ROOT = Path(__file__).resolve().parents[2]


def wait_for_members(port: int, ids: list[int]) -> None:
    """Until these are the members; the one at that port says so."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        with contextlib.suppress(deltawire.DeltawireError):
            if [number for number, _ in members_at(f"127.0.0.1:{port}")] == ids:
                return
        time.sleep(0.05)
    raise AssertionError("they don't meet")


def test_the_guide_has_the_example_which_goes_on_without_a_rank() -> None:
    guide = (ROOT / "docs/guides/elastic.md").read_text()
    example = ROOT / "examples/elastic_session.py"
    assert f"```python\n{example.read_text()}```" in guide
    environment = os.environ | {"DELTAWIRE_TOKEN": SECRET, "STEPS": "120", "PAUSE": "0.05"}
    with kept_port() as port, contextlib.ExitStack() as started:

        def start(*place: str) -> subprocess.Popen:
            command = [sys.executable, str(example), f"127.0.0.1:{port}", *place]
            program = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
            started.callback(program.kill)
            return program

        programs = [start(rank, "3") for rank in ("0", "1", "2")]
        wait_for_members(port, [0, 1, 2])
        programs.append(start())
        wait_for_members(port, [0, 1, 2, 3])
        programs[2].kill()
        said = [each.communicate(timeout=LIMIT)[0] for each in programs]
    ends = {text.split("epoch ")[1] for text in said[:2] + said[3:]}
    assert len(ends) == 1 and "of 3" in said[0], said


def test_what_is_refused() -> None:
    with pytest.raises(deltawire.InvalidArgumentError, match="fold"):
        deltawire.Session("3lc", rank=0, world_size=1, **settings(revert="fold"))
    with pytest.raises(deltawire.InvalidArgumentError, match="elastic"):
        deltawire.Session("3lc", rank=0, world_size=1, at_least=2)
    with pytest.raises(deltawire.InvalidArgumentError, match="rank"):
        deltawire.Session("3lc", token=SECRET)
    with pytest.raises(deltawire.InvalidArgumentError, match="token"):
        os.environ.pop("DELTAWIRE_TOKEN", None)
        deltawire.Session("3lc", rank=0, world_size=1, elastic=True)


def test_errors_that_end_the_session_name_the_epoch() -> None:
    with deltawire.Session("3lc", rank=0, world_size=1, **settings()) as session:
        with pytest.raises(deltawire.DeltawireError, match=r"\(epoch 0\)") as caught:
            session.all_reduce({"x": np.full(ELEMENTS, np.nan, np.float32)})
        assert caught.value.code == "NotFinite" and caught.value.epoch == 0
        with pytest.raises(deltawire.DeltawireError, match=r"\(epoch 0\)"):
            session.all_reduce({"x": np.zeros(ELEMENTS, np.float32)})


def test_a_member_has_two_ports(address):
    port = address.rpartition(":")[2]
    with pytest.raises(deltawire.DeltawireError, match="needs two ports, one of them for its door"):
        session_of(0, 1, address, port=port)
