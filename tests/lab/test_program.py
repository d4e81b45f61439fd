"""`lab.command.program`: a long measurement keeps its results when it is interrupted or fails."""

import json
from pathlib import Path

from lab.command.program import measure_each


def test_a_case_that_fails_leaves_the_others_results(tmp_path: Path, capsys):
    out = tmp_path / "new folder" / "rows.json"
    found: list = []
    files: list = []

    def measure(case: int) -> list:
        files.append(json.loads(out.read_text()) if out.exists() else None)
        if case == 2:
            raise ValueError("rank 1 ended")
        return [case, 10 * case]

    assert measure_each([1, 2, 3], measure, found, out, ValueError) == 1
    assert found == json.loads(out.read_text()) == [1, 10, 3, 30]
    assert files == [None, [1, 10], [1, 10]], "each case's results are on the disk at once"
    assert capsys.readouterr().err == "2: rank 1 ended\n"
    assert measure_each([1], measure, [], out, ValueError) == 0
