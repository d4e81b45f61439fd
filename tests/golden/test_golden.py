"""Today's encoder makes the golden bytes, today's decoder the golden values: here too.

Of a codec whose bytes are those of a library's version the values alone count, there and back.
"""

import os
import subprocess
import sys
from pathlib import Path

import deltawire
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import archives  # noqa: E402
import messages  # noqa: E402
import states  # noqa: E402
from archives import ARCHIVES, Archive  # noqa: E402
from cases import INPUTS, Case, cases  # noqa: E402
from messages import Sent  # noqa: E402
from update import FOLDER, HERE, LIST, decode, encode, line_of  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
BINARY = os.environ.get("DELTAWIRE_BIN", str(ROOT / "build" / "release" / "deltawire"))
CASES: dict[str, list[Case]] = {}  # by codec: 560 items would take pytest a second
for _case in cases(BINARY):
    CASES.setdefault(_case.spec.partition(":")[0], []).append(_case)
SENT = list(messages.sent(BINARY))


@pytest.mark.parametrize("codec", CASES)
def test_bytes_and_values(codec: str) -> None:
    for case in CASES[codec]:
        print(case.stem)
        check_bytes_and_values(case)


def check_bytes_and_values(case: Case) -> None:
    golden = (FOLDER / f"{case.stem}.dw").read_bytes()
    again = encode(BINARY, case)
    decoded = decode_golden(golden, case)
    if case.follows_library:
        assert decode(BINARY, again).tobytes() == decoded.tobytes()
    else:
        assert (again == golden) is not case.superseded
    expected = np.load(FOLDER / f"{case.stem}.npz")["values"]
    values = INPUTS[case.input]()
    assert decoded.dtype == expected.dtype == values.dtype
    assert decoded.shape == expected.shape == values.shape
    assert decoded.tobytes() == expected.tobytes()


def decode_golden(golden: bytes, case: Case) -> np.ndarray:
    """By the package where it can, if the program is of this machine: to start that takes longer.
    The program decodes archives, too."""
    if "DELTAWIRE_BIN" in os.environ or INPUTS[case.input]().dtype != np.float32:
        return decode(BINARY, golden)
    return deltawire.decode(golden)


@pytest.mark.parametrize("archive", ARCHIVES, ids=[each.path.stem for each in ARCHIVES])
def test_archives(archive: Archive, tmp_path: Path) -> None:
    """Names, order and bytes of the members are the golden ones, and so are the values."""
    again = tmp_path / archive.path.name
    again.write_bytes(archives.encode(BINARY, archive))
    golden = archives.members(archive.path)
    written = archives.members(again)
    assert list(written) == list(golden)
    changed = {name for name in golden if written[name] != golden[name]}
    assert changed == ({"half.dw"} if archive.superseded else set())
    inputs = archives.arrays_of(archive)
    assert list(golden) == [f"{name}.dw" for name in inputs]
    with np.load(archive.path.with_suffix(".npz")) as file:
        expected = dict(file)
    for path in (archive.path,) if archive.superseded else (archive.path, again):
        decoded = archives.decode(BINARY, path)
        assert list(decoded) == list(expected) == list(inputs)
        for name, values in decoded.items():
            assert values.dtype == expected[name].dtype == inputs[name].dtype, name
            assert values.shape == expected[name].shape == inputs[name].shape, name
            assert values.tobytes() == expected[name].tobytes(), name


@pytest.mark.parametrize("case", SENT, ids=[case.stem for case in SENT])
def test_messages_and_residuals(case: Sent) -> None:
    channel = case.channel()
    again = messages.encode(channel, case.kind)
    expected = np.load(case.path("npz"))
    for step in messages.STEPS:
        golden = case.path(f"{step}.message").read_bytes()
        assert case.follows_library or again[f"{step}.message"] == golden
        if not case.decodes_here:
            continue
        for message in (golden, again[f"{step}.message"]):
            for name, values in messages.decode(case.channel(), message, step, case.kind).items():
                assert values.tobytes() == expected[f"{name}.{step}"].tobytes(), (name, step)
    state = case.path("state").read_bytes()
    assert again["state"] == state
    channel = case.channel()
    channel.load(state)
    assert channel.save() == state


@pytest.mark.parametrize("kind", messages.OPTIMIZERS)
def test_optimizer_states(kind: str) -> None:
    state = (messages.FOLDER / f"optimizer-{kind}.state").read_bytes()
    assert messages.optimizer_state(kind) == state
    optimizer = deltawire.Optimizer(kind)
    optimizer.load(state)
    assert optimizer.save() == state


@pytest.mark.parametrize("spec", states.REDUCERS)
def test_reducer_states(spec: str) -> None:
    stem = states.FOLDER / states.stem_of(spec)
    golden = [stem.with_name(f"{stem.name}.{rank}.state").read_bytes() for rank in range(2)]
    expected = np.load(stem.with_suffix(".npz"))
    for loaded in (None, golden):
        again, means = states.reducer_states(spec, loaded)
        assert again == golden
        for of_rank in means:
            for name, values in of_rank.items():
                assert values.tobytes() == expected[name].tobytes(), name


def test_server_states() -> None:
    golden = [(states.FOLDER / f"{who}.state").read_bytes() for who in ("server", "worker")]
    expected = np.load(states.FOLDER / "server.npz")
    for loaded in (None, golden):
        again, model = states.served_states(loaded)
        assert again == golden
        for name, values in model.items():
            assert values.tobytes() == expected[name].tobytes(), name


def test_states_with_late_gradients() -> None:
    golden = [(states.FOLDER / f"{who}.state").read_bytes() for who in states.LATE]
    expected = np.load(states.FOLDER / "late.npz")
    late = golden[-1]
    assert int.from_bytes(late[40:48], "little") == states.arrays_of(2, 0)["w"].size, "holds none"
    for loaded in (None, golden):
        again, model = states.late_states(loaded)
        assert again == golden
        for name, values in model.items():
            assert values.tobytes() == expected[name].tobytes(), name


def test_snapshots(tmp_path: Path) -> None:
    assert states.snapshot(tmp_path) == states.SNAPSHOT.read_bytes()
    (tmp_path / states.SNAPSHOT.name).write_bytes(states.SNAPSHOT.read_bytes())
    place = states.place_of(tmp_path)
    assert place.find() == [300]
    assert place.read(300) == states.KEPT


def test_the_guides_command_adds_nothing_where_nothing_is_missing() -> None:
    """docs/design/adding-a-codec.md, section 4."""
    guide = (ROOT / "docs" / "design" / "adding-a-codec.md").read_text()
    (line,) = [line for line in guide.splitlines() if "golden/update.py" in line]
    words = line.partition("#")[0].split()[1:]
    done = subprocess.run(
        [sys.executable, *words, "--binary", BINARY], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "0 golden files added\n"), done.stderr


def test_every_codec_has_its_files_and_no_file_is_left_over() -> None:
    stems = [case.stem for cases in CASES.values() for case in cases]
    wanted = {f"{stem}{suffix}" for stem in stems for suffix in (".dw", ".npz")}
    assert {path.name for path in FOLDER.iterdir()} == wanted


def test_format_1_is_final() -> None:
    """Each golden file is as it was on the day on which format 1 was frozen, or on which it came.

    A line of the list that no longer holds means that files and messages which users have kept
    can't be read as before: mend the code. Lines are added (update.py does), never changed.
    """
    listed = [line for line in LIST.read_text().splitlines() if not line.startswith("#")]
    kinds = (HERE / kind for kind in ("patches", "patch_files"))
    folders = (FOLDER, archives.FOLDER, messages.FOLDER, states.FOLDER, *kinds)
    paths = [path for folder in folders for path in folder.iterdir()]
    there = {str(path.relative_to(HERE)): line_of(path) for path in paths}
    changed = [line for line in listed if there.get(line.split("  ")[1]) != line]
    assert not changed, "golden files of format 1 changed, or are gone"
    assert {line.split("  ")[1] for line in listed} == there.keys(), "files without a line"
