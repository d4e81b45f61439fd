"""The checker's rules for Python's imports pass on this tree and find each planted defect."""

from pathlib import Path

import pytest
from planted import bare, check, expect_one, plant

PACKAGE = "python/deltawire"


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A small package under the real rules, without defects until a test plants one."""
    bare(tmp_path)
    for folder in ("", "torch", "torch/core", "torch/gpu", "torch/ddp"):
        plant(tmp_path, f"{PACKAGE}/{folder}/__init__.py")
    plant(tmp_path, f"{PACKAGE}/errors.py", "import json\nfrom deltawire import _core\n")
    plant(tmp_path, f"{PACKAGE}/arrays.py", "from deltawire import _core, errors\n")
    plant(
        tmp_path,
        f"{PACKAGE}/torch/core/staging.py",
        "from deltawire._core import x\nimport torch\n",
    )
    plant(tmp_path, f"{PACKAGE}/torch/ddp/hook.py", "from deltawire.torch.core import staging\n")
    assert check(tmp_path)[0] == 0, check(tmp_path)[1]
    return tmp_path


@pytest.mark.parametrize(
    "text",
    [
        "from deltawire.torch.ddp.hook import Hook\n",
        "from deltawire.torch.ddp import hook\n",
        "import deltawire.torch.ddp.hook\n",
        "from ..ddp import hook\n",
        "def late():\n    from deltawire.torch.ddp import hook\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..ddp.hook import Hook\n",
    ],
)
def test_an_import_upward(house: Path, text: str) -> None:
    plant(house, f"{PACKAGE}/torch/core/settings.py", text)
    line = text.count("\n")
    expect_one(
        house,
        f"{PACKAGE}/torch/core/settings.py:{line}:",
        "imports deltawire.torch.ddp.hook" if "deltawire" in text else "ddp.hook",
        "of torch.ddp: torch.core may use only",
    )


def test_the_package_itself_is_a_layer(house: Path) -> None:
    plant(house, f"{PACKAGE}/arguments.py", "from deltawire import canonical_spec\n")
    expect_one(house, f"{PACKAGE}/arguments.py:1:", "imports deltawire, of package")


def test_a_module_without_a_layer(house: Path) -> None:
    plant(house, f"{PACKAGE}/attic.py")
    expect_one(house, f"{PACKAGE}/attic.py:1:", "no layer has this module")


@pytest.mark.parametrize("text", ["import deltawire.gone\n", "from deltawire.gone import x\n"])
def test_a_module_that_is_not_there(house: Path, text: str) -> None:
    plant(house, f"{PACKAGE}/lightning.py", text)
    expect_one(house, f"{PACKAGE}/lightning.py:1:", "deltawire.gone: there is no such module")


@pytest.mark.parametrize(
    "back",
    [
        "import a\n",
        "def late():\n    import a\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from a import A\n",
    ],
)
def test_a_circle(house: Path, back: str) -> None:
    plant(house, "scripts/a.py", "import json\nimport b\n")
    plant(house, "scripts/b.py", "import json\n")
    assert check(house)[0] == 0
    plant(house, "scripts/b.py", back)
    expect_one(house, "scripts/a.py:2: these modules import each other: scripts/a.py, scripts/b.py")


def test_a_circle_within_a_layer(house: Path) -> None:
    plant(house, f"{PACKAGE}/torch/core/abort.py", "from . import staging\n")
    plant(house, f"{PACKAGE}/torch/core/staging.py", "def f():\n    from . import abort\n")
    expect_one(house, "import each other", "core/abort.py", "core/staging.py")


def table(house: Path, old: str, new: str) -> None:
    page = house / "docs" / "design" / "architecture.md"
    text = page.read_text()
    assert old in text
    page.write_text(text.replace(old, new))


def test_a_table_with_a_circle(house: Path) -> None:
    table(house, "| `arguments` | `arguments` ", "| `arguments` | `new` | `terms` |\n| `x` | `y` ")
    status, said = check(house)
    assert status == 1
    assert "these layers may use each other: arguments, terms" in said


def test_a_table_of_modules_that_are_gone(house: Path) -> None:
    plant(house, "CMakeLists.txt", "\n")
    status, said = check(house)
    assert status == 1
    assert "layer flower names flower/, which python/deltawire/ does not have" in said
    assert "names errors" not in said


def test_a_page_without_the_table(house: Path) -> None:
    table(house, "<!-- python layers -->", "")
    status, said = check(house)
    assert status == 1
    assert "no table between <!-- python layers -->" in said
