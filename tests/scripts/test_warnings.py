"""Warnings are errors where the presets build, and nowhere else: a newer compiler has new ones."""

import json
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
SWITCH = "CMAKE_COMPILE_WARNING_AS_ERROR"


def commands(folder: Path, *options: str) -> str:
    """The compiler's command lines as CMake would have them."""
    off = [f"-DDELTAWIRE_{name}=OFF" for name in ("TESTS", "MPI")]
    subprocess.run(
        ["cmake", "-S", ROOT, "-B", folder, *off, *options], check=True, capture_output=True
    )
    return (folder / "compile_commands.json").read_text()


def test_a_build_without_a_preset_passes_warnings(tmp_path: Path) -> None:
    plain = commands(tmp_path)
    assert "-Wall" in plain and "-Werror" not in plain
    assert "-Werror" in commands(tmp_path, f"-D{SWITCH}=ON")


def test_every_preset_has_them_as_errors() -> None:
    presets = {
        preset["name"]: preset
        for preset in json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]
    }

    def variables(name: str) -> dict:
        parents = presets[name].get("inherits", [])
        found = {}
        for parent in reversed([parents] if isinstance(parents, str) else parents):
            found |= variables(parent)
        return found | presets[name].get("cacheVariables", {})

    built = [name for name, preset in presets.items() if not preset.get("hidden")]
    assert len(built) >= 6
    for name in built:
        assert variables(name)[SWITCH] == "ON", name
