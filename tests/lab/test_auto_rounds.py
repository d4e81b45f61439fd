"""The probe of LocalSteps with "auto": its table."""

from lab.probes import auto_rounds


def test_a_row_for_each_method(tmp_path, monkeypatch, capsys):
    (tmp_path / "shakespeare").mkdir()
    text = b"To be, or not to be, that is the question: " * 60
    (tmp_path / "shakespeare" / "input.txt").write_bytes(text)
    monkeypatch.setenv("DELTAWIRE_DATA", str(tmp_path))
    size = ["--width=8", "--layers=1", "--steps=22", "--every=2", "--link=none"]
    assert auto_rounds.main(["--ranks=2", *size]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == [
        *("| mildest", "| thinnest", "| auto", "| auto, no loss")
    ]
    assert all("| 10 %, 2 (1)" in line for line in lines[4:]), lines
