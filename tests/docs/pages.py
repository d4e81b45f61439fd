"""Finds the documentation's files and their parts: code blocks, commands, prose, anchors."""

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_HISTORY = re.compile(r"in the history:\s+`?([\w./-]+)`?\s+at\s+`?([0-9a-f]{7,40})`?\.?\)")
_FENCE = re.compile(r"^( *)(`{3,}|:{3,})([^\s`]*)")
_MARK = re.compile(r"^ *<!-- block: (.*) -->$")
_DIRECTIVES = ("{eval-rst}", "{toctree}")  # of the site, no code


@dataclasses.dataclass
class Block:
    """A fenced block: its language, text, where it is, and what the line above says checks it."""

    page: str
    line: int
    language: str
    text: str
    check: str | None

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def users_pages() -> list[Path]:
    """README, docs/, and the pages of examples and of sparse linear models."""
    more = [ROOT / "examples/README.md", ROOT / "apps/linear/README.md"]
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *more]


def all_pages() -> list[Path]:
    """The users' pages, and the rest of the site."""
    more = [*map(ROOT.joinpath, ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "ARTIFACT.md"))]
    more.append(ROOT / "tests/traces/README.md")
    return [*users_pages(), *more, *sorted((ROOT / "src/codecs").rglob("spec.md"))]


def blocks_of(page: Path) -> list[Block]:
    """Every fenced block of code, in order."""
    found, fence, mark, above = [], None, None, ""
    for number, line in enumerate(page.read_text().splitlines(), start=1):
        match = _FENCE.match(line)
        if fence is None and match:
            mark = _MARK.match(above)
            fence = (match[2], match[3], number, [])
        elif fence is not None and match and match[2] == fence[0] and not match[3]:
            language, start, lines = fence[1:]
            if language not in _DIRECTIVES:
                name = str(page.relative_to(ROOT))
                check = mark[1] if mark else None
                found.append(Block(name, start, language, "".join(f"{x}\n" for x in lines), check))
            fence = None
        elif fence is not None:
            fence[3].append(line)
        above = line
    assert fence is None, f"{page}: a block is not closed"
    return found


def commands_of(page: Path) -> Iterator[tuple[str, str]]:
    """What a page tells its readers to type, and pieces of code that look like it: (place, line).

    Lines of shell blocks, indented lines and code within a line (but in headings), each in one
    line; of the changelog the unreleased part.
    """
    name, language, typed, prose = page.relative_to(ROOT), None, "", []
    for number, line in enumerate(page.read_text().partition("\n## 0.1.0")[0].splitlines(), 1):
        if fence := _FENCE.match(line):
            language = None if language is not None else fence[3]
        elif language in ("bash", "console") or (language is None and line.startswith("    ")):
            typed += line.strip().removeprefix("$ ")
            if typed.endswith("\\"):
                typed = typed[:-1]
            else:
                yield f"{name}:{number}", typed
                typed = ""
        elif language is None and not line.startswith("#"):
            prose.append(line)
    for code in re.findall(r"`([^`]+)`", "\n".join(prose)):
        yield str(name), " ".join(code.split())


def programs_of_history(page: Path) -> dict[str, str]:
    """Programs that made a page's figures and are gone: path -> a commit that has it."""
    return dict(_HISTORY.findall(page.read_text()))


def places_of(module: str) -> list[str]:
    """The files that `python -m MODULE` may mean."""
    named = module.replace(".", "/")
    return [f"{named}.py", f"{named}/__main__.py"]


def without_code(text: str) -> str:
    """A page's prose: no fenced blocks, no indented ones, no code in a line."""
    prose, fenced = [], False
    for line in text.splitlines():
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and not line.startswith("    "):
            prose.append(re.sub(r"`[^`]*`", "`code`", line))
    return "\n".join(prose)


def anchors_of(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    found: set[str] = set()
    fenced = False
    for line in page.read_text().splitlines():
        fenced ^= bool(_FENCE.match(line))
        if not fenced and (heading := re.match(r"#{1,6} (.+)", line)):
            text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading[1]).lower().strip()
            slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
            number = 0
            while (name := slug if number == 0 else f"{slug}-{number}") in found:
                number += 1
            found.add(name)
    return found
