"""Traces that break a rule of traces.md are refused, by a message that names the file."""

import json
import shutil

import deltawire
import numpy as np
import pytest
from made_up import LOSSLESS, same_bits
from refusals import raised


def refused(folder, code: str, said: str = ".") -> None:
    """The whole is read: a page's faults come at once, those of arrays with their step."""
    with pytest.raises(deltawire.DeltawireError, match=said) as caught:
        list(deltawire.read_trace(folder))
    assert caught.value.code == code, caught.value
    assert str(folder) in str(caught.value)


def test_a_folder_without_a_page_is_not_a_trace(folder, tmp_path):
    (folder / "trace.json").unlink()
    refused(folder, "Io", "not a trace, or one that was broken off")
    refused(tmp_path / "nothing", "Io")


def at(*path):
    """Changes of a page: at(..., value) puts a value, at(..., DROP) takes a field out."""
    *way, last, value = path

    def change(page):
        for key in way:
            page = page[key]
        if value is DROP:
            del page[last]
        else:
            page[last] = value

    return change


DROP = object()
STEP, ENTRY = ("steps", 0), ("steps", 0, "tensors", 0)
BROKEN_PAGES = {
    "no format": (at("format", DROP), "format"),
    "a format in words": (at("format", "1"), "format"),
    "a true format": (at("format", True), "format"),
    "a model that is no text": (at("model", 5), "model"),
    "no tensors": (at("tensors", DROP), "tensors"),
    "an empty list of tensors": (at("tensors", []), "tensors"),
    "a tensor that is not an object": (at("tensors", 0, "conv"), "tensor 0"),
    "no name": (at("tensors", 0, "name", DROP), "tensor 0"),
    "an empty name": (at("tensors", 0, "name", ""), "tensor 0"),
    "a name twice": (at("tensors", 0, "name", "scale"), "same name"),
    "no shape": (at("tensors", 0, "shape", DROP), "conv.weight"),
    "a negative extent": (at("tensors", 0, "shape", [-30]), "conv.weight"),
    "an extent that is no whole number": (at("tensors", 0, "shape", [30.0]), "conv.weight"),
    "an extent of true": (at("tensors", 1, "shape", [True]), "scale"),
    "nine dimensions": (at("tensors", 0, "shape", [30] + [1] * 8), "8 dimensions"),
    "2^32 elements": (at("tensors", 0, "shape", [1 << 16, 1 << 16]), "2\\^32"),
    "pairs in words": (at("tensors", 2, "pairs", "yes"), "pairs"),
    "no steps": (at("steps", DROP), "steps"),
    "an empty list of steps": (at("steps", []), "steps"),
    "a step that is not an object": (at("steps", 0, 3), "entry 0"),
    "a step without a number": (at(*STEP, "step", DROP), "entry 0"),
    "step 0": (at(*STEP, "step", 0), "entry 0"),
    "a step that is not above the one before": (at("steps", 1, "step", 3), "entry 1"),
    "a step without entries": (at(*STEP, "tensors", DROP), "step 3"),
    "an entry too few": (at("steps", 1, "tensors", 3, DROP), "step 20"),
    "an entry that is a text": (at(*ENTRY, "values.npy"), "neither"),
    "no values": (at(*ENTRY, "values", DROP), "no values"),
    "pairs without keys": (at("steps", 0, "tensors", 2, "keys", DROP), "has no keys"),
    "keys without pairs": (at(*ENTRY, "keys", "000003/2.keys.npy"), "has keys"),
}


@pytest.mark.parametrize("name", BROKEN_PAGES)
def test_a_page_that_breaks_a_rule_is_refused_at_once(folder, name):
    change, said = BROKEN_PAGES[name]
    page = json.loads((folder / "trace.json").read_text())
    change(page)
    (folder / "trace.json").write_text(json.dumps(page))
    caught = raised(deltawire.DeltawireError, deltawire.read_trace, folder, match=said)
    assert caught.code == "Corrupt"
    assert "trace.json" in str(caught)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "\xff", "[" * 100_000, '{"format": NaN}', '{"format": 1e999}']
)
def test_a_page_that_is_not_a_json_object_is_refused(folder, text):
    (folder / "trace.json").write_text(text, encoding="latin-1")
    refused(folder, "Corrupt")


def test_a_field_may_not_stand_twice(folder):
    page = (folder / "trace.json").read_text()
    (folder / "trace.json").write_text(page.replace('"format": 1,', '"format": 1, "format": 1,'))
    refused(folder, "Corrupt", "twice")


def test_another_format_is_refused_by_name_and_unknown_fields_are_not(folder):
    page = json.loads((folder / "trace.json").read_text())
    page["host"] = page["tensors"][0]["layer"] = page["steps"][0]["loss"] = 3
    (folder / "trace.json").write_text(json.dumps(page))
    assert len(list(deltawire.read_trace(folder))) == 2
    page["format"] = 2
    (folder / "trace.json").write_text(json.dumps(page))
    refused_code = "UnsupportedVersion"
    caught = raised(deltawire.DeltawireError, deltawire.read_trace, folder, match="format 2")
    assert caught.code == refused_code


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/etc/passwd.npy",
            "../0.npy",
            "000003/../../x.npy",
            "000003/../000003/0.npy",
            "000003//0.npy",
            "./000003/0.npy",
        ),
        *("", "000003/", "000003\\0.npy", "000003/0\0.npy", "000003/0.bin", 5, None),
    ],
)
def test_paths_stay_below_the_folder(folder, path):
    shutil.copy(folder / "000003" / "0.npy", folder.parent / "x.npy")
    page = json.loads((folder / "trace.json").read_text())
    page["steps"][0]["tensors"][0]["values"] = path
    (folder / "trace.json").write_text(json.dumps(page))
    refused(folder, "Corrupt")


def test_links_stay_below_the_folder(folder):
    shutil.move(folder / "000003", folder.parent / "elsewhere")
    (folder / "000003").symlink_to(folder.parent / "elsewhere")
    refused(folder, "Corrupt", "link")


def saved(array, **options):
    return lambda path: np.save(path, array, **options)


def cut_by(count: int):
    return lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size - count])


def put(data: bytes):
    return lambda path: path.write_bytes(data)


def longer(path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def claiming(count):
    """A head that claims more keys than memory holds."""

    def write(path):
        with path.open("wb") as file:
            np.lib.format.write_array_header_1_0(
                file, {"descr": "<i8", "fortran_order": False, "shape": (count,)}
            )

    return write


FLOATS = np.zeros((3, 2, 5), np.float32)
BROKEN_ARRAYS = {
    "missing": ("0.npy", lambda path: path.unlink(), "Io"),
    "empty": ("0.npy", put(b""), "Corrupt"),
    "no magic": ("0.npy", put(b"\x92NUMPY" + bytes(200)), "Corrupt"),
    "an unknown version": ("0.npy", put(b"\x93NUMPY\x09\x00" + bytes(200)), "Corrupt"),
    "a broken head": ("0.npy", put(b"\x93NUMPY\x01\x00\x04\x00{(((" + bytes(200)), "Corrupt"),
    "cut within the head": ("0.npy", put(b"\x93NUMPY\x01\x00\x76\x00{"), "Corrupt"),
    "short": ("0.npy", cut_by(1), "Truncated"),
    "long": ("0.npy", longer, "Corrupt"),
    "another shape": ("0.npy", saved(FLOATS.reshape(2, 3, 5)), "Mismatch"),
    "flat": ("0.npy", saved(FLOATS.reshape(-1)), "Mismatch"),
    "a claim of terabytes": ("2.keys.npy", claiming(1 << 40), "Truncated"),
    "a claim beyond 64 bits": ("2.keys.npy", claiming(1 << 70), "Truncated"),
    "float64": ("0.npy", saved(FLOATS.astype(np.float64)), "Mismatch"),
    "big-endian": ("0.npy", saved(FLOATS.astype(">f4")), "Mismatch"),
    "Fortran order": ("0.npy", saved(np.asfortranarray(FLOATS)), "Mismatch"),
    "objects": ("0.npy", saved(np.array([{}]), allow_pickle=True), "Mismatch"),
    "significance of another shape": ("0.significance.npy", saved(FLOATS[0]), "Mismatch"),
    "values of other pairs": ("2.npy", saved(np.zeros(5, np.float32)), "Mismatch"),
    "significance of other pairs": ("2.significance.npy", saved(FLOATS[0, 0, :3]), "Mismatch"),
    "keys of 32 bits": ("2.keys.npy", saved(np.arange(4, dtype=np.int32)), "Mismatch"),
    "keys of two dimensions": ("2.keys.npy", saved(np.arange(4).reshape(2, 2)), "Mismatch"),
    "a key twice": ("2.keys.npy", saved(np.array([0, 7, 7, 8])), "Corrupt"),
    "keys that fall": ("2.keys.npy", saved(np.array([0, 7, 6, 8])), "Corrupt"),
    "a negative key": ("2.keys.npy", saved(np.array([-1, 7, 8, 9])), "Corrupt"),
    "a key beyond": ("2.keys.npy", saved(np.array([0, 7, 8, 4000])), "Corrupt"),
}


@pytest.mark.parametrize("name", BROKEN_ARRAYS)
def test_a_broken_array_is_refused_with_its_name(folder, name):
    file, damage, code = BROKEN_ARRAYS[name]
    damage(folder / "000003" / file)
    trace = deltawire.read_trace(folder)
    caught = raised(deltawire.DeltawireError, trace.load, 3)
    assert caught.code == code, caught
    name_of_file = "2.npy" if name == "values of other pairs" else file
    assert name_of_file in str(caught)
    assert trace.load(20).number == 20


def test_npy_files_of_newer_versions_are_read(folder):
    path = folder / "000003" / "0.npy"
    values = np.load(path)
    for version in ((2, 0), (3, 0)):
        with path.open("wb") as file:
            np.lib.format.write_array(file, values, version=version)
        assert same_bits(deltawire.read_trace(folder).load(3).gradients[0].values, values)


def with_dw(folder, data: bytes) -> None:
    page = (folder / "trace.json").read_text().replace("000003/0.npy", "000003/0.dw")
    (folder / "trace.json").write_text(page)
    (folder / "000003" / "0.dw").write_bytes(data)


def test_dw_files_are_of_a_codec_that_loses_nothing(folder):
    whole = deltawire.encode(FLOATS, LOSSLESS)
    with_dw(folder, whole)
    assert same_bits(deltawire.read_trace(folder).load(3).gradients[0].values, FLOATS)
    with_dw(folder, deltawire.encode(FLOATS, "fp32"))
    assert len(list(deltawire.read_trace(folder))) == 2
    for spec in ("gcomp:cut=0", "bf16", "3lc"):
        with_dw(folder, deltawire.encode(FLOATS, spec))
        refused(folder, "Mismatch", "0.dw.*loses bits")
    with_dw(folder, deltawire.encode(FLOATS.reshape(-1), LOSSLESS))
    refused(folder, "Mismatch", "0.dw.*shape")
    with_dw(folder, whole[:-1])
    refused(folder, "Truncated", "0.dw")
    with_dw(folder, whole[:-2] + bytes([whole[-2] ^ 1]) + whole[-1:])
    refused(folder, "Corrupt", "0.dw")
    (folder / "000003" / "0.dw").unlink()
    refused(folder, "Io", "0.dw")
