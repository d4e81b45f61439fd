"""Links between pages lead somewhere, each page has its place on the site, quotations are true."""

import re
import subprocess
from pathlib import Path

import pages
import pytest

INDEX = (pages.ROOT / "docs" / "index.md").read_text()
LINK = re.compile(r"(?<!`)\[[^]]*\]\(([^)\s]+)\)")


def test_links_lead_somewhere():
    links = {page: LINK.findall(pages.without_code(page.read_text())) for page in pages.all_pages()}
    for page, target in ((page, target) for page, targets in links.items() for target in targets):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{page.name}: no {target}"
        if anchor:
            assert anchor in pages.anchors_of(there), f"{page.name}: no heading {target}"


FILE = re.compile(
    r"(?<![\w/.:-])(?:tests|lab|scripts|examples|python|include|apps|bench|cmake|docs"
    r"|src/(?!tplr|kvstore))/[\w/.-]+\.(?:py|sh|cc|hp*|cmake|md|json|toml)\b"
    r"|python -m (lab[\w.]+\w)"
)
BARE = re.compile(r"`([a-z]\w+\.(?:py|sh|cc|h|cmake))`")
_NOT_OURS = ("app.cc", "demo.py")  # the reader's, and DeMo's authors'
SOURCES = {  # by suffix: no golden files
    path
    for folder in ("apps", "bench", "cmake", "examples", "include", "lab", "python", "src", "tests")
    for path in (pages.ROOT / folder).rglob("*.*")
    if path.suffix in (".py", ".sh", ".cc", ".h", ".cmake", ".txt")
}


def test_files_and_modules_that_pages_name_exist():
    known = {path.name for path in SOURCES}.union(_NOT_OURS)
    for page in pages.all_pages():
        text, gone = page.read_text().partition("\n## 0.1.0")[0], pages.programs_of_history(page)
        for named in FILE.finditer(text):
            places = pages.places_of(named[1]) if named[1] else [named[0]]
            found = any((pages.ROOT / place).is_file() or place in gone for place in places)
            assert found, f"{page.name}: there is no {named[0]}"
        unknown = set(BARE.findall(text)) - known
        assert not unknown, f"{page.name}: there is no {unknown}"


def git(*words: str) -> subprocess.CompletedProcess:
    return subprocess.run(["git", *words], cwd=pages.ROOT, capture_output=True, text=True)


def test_commits_that_pages_name_are_in_the_history_and_have_what_pages_say():
    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("no clone with its history")
    named = {each for page in pages.all_pages() for each in pages.programs_of_history(page).items()}
    assert len(named) > 10
    cited = re.compile(r"(?:\bat |`)([0-9a-f]{8})\b")
    commits = {found for page in pages.all_pages() for found in cited.findall(page.read_text())}
    # A commit that no branch holds is there where it was made, and in no clone.
    for commit in commits | {commit for _, commit in named}:
        reached = git("merge-base", "--is-ancestor", commit, "HEAD").returncode == 0
        assert reached, f"{commit}, which a page names, is not in the history"
    for path, commit in named:
        assert not (pages.ROOT / path).exists(), f"{path} is not gone"
        assert git("cat-file", "-e", f"{commit}:{path}").returncode == 0, f"{commit} has no {path}"


def test_every_page_has_a_place_on_the_site():
    trees = "\n".join(re.findall(r"```\{toctree\}\n(.*?)```", INDEX, re.S))
    entries = [line for line in trees.splitlines() if line and not line.startswith(":")]
    listed = {re.sub(r".*<(.*)>", r"\1", entry) for entry in entries}
    here = {
        str(page.relative_to(pages.ROOT / "docs").with_suffix(""))
        for page in (pages.ROOT / "docs").rglob("*.md")
    } - {"index"}
    assert here <= listed, f"put into docs/index.md, in one of its lists: {here - listed}"
    for entry in listed - here:
        may_be_missing = f'"{entry}"' in (pages.ROOT / "docs/site/conf.py").read_text()
        there = any((pages.ROOT / "docs").glob(f"{entry}.md"))
        assert there or may_be_missing, f"docs/index.md lists {entry}, which is no page"


def test_the_reference_has_every_header():
    page = (pages.ROOT / "docs/reference/api/cpp.md").read_text()
    headers = {path.name for path in (pages.ROOT / "include/deltawire").glob("*.h")}
    assert set(re.findall(r"doxygenfile:: (\S+)", page)) == headers - {"export.h"}


def shown_texts(folders=("src", "apps", "python", "cmake")) -> str:
    """The sources, with adjacent string literals joined."""
    sources = [
        path
        for folder in folders
        for path in sorted((pages.ROOT / folder).rglob("*"))
        if path.suffix in (".cc", ".h", ".py", ".cmake") and "_test" not in path.name
    ]
    text = "\n".join(path.read_text() for path in sources)
    return re.sub(r'["\']\s*\n\s*f?["\']', "", text).replace("\\'", "'").replace('\\"', '"')


def test_troubleshooting_quotes_texts_that_exist():
    page = (pages.ROOT / "docs/guides/troubleshooting.md").read_text()
    quoted = re.findall(r"^### `(.*)`$", page, re.M)
    assert len(quoted) > 30
    texts = shown_texts()
    for quotation in quoted:
        for piece in quotation.split("…"):
            assert piece.strip() in texts, f"troubleshooting.md quotes '{piece.strip()}'"


def test_variables_of_the_environment_are_read_somewhere():
    named = re.compile(r"\bDELTAWIRE_[A-Z_]+\b")
    sources = [*SOURCES, pages.ROOT / "CMakeLists.txt", *(pages.ROOT / "scripts").glob("*.sh")]
    known = {name for path in sources for name in named.findall(path.read_text())}
    for page in pages.all_pages():
        assert set(named.findall(page.read_text())) <= known, page.name


def test_pages_know_how_many_codecs_there_are():
    count = len(list((pages.ROOT / "src/codecs").rglob("spec.md")))
    for name in ("README.md", "docs/reference/comparison.md", "docs/start/choose-a-codec.md"):
        said = re.findall(r"(\d+) codecs\b|\bAll (\d+)\b", (pages.ROOT / name).read_text())
        assert {int(a or b) for a, b in said} == {count}, name


def test_rows_are_quoted_as_they_are():
    """`<!-- rows of PAGE -->` ... `<!-- end -->`: each row is in PAGE, too."""
    page = pages.ROOT / "docs/start/choose-a-codec.md"
    quotations = re.findall(r"<!-- rows of (\S+) -->\n(.*?)<!-- end -->", page.read_text(), re.S)
    assert len(quotations) == 1
    for source, rows in quotations:
        origin = Path(page.parent, source).read_text().splitlines()
        for row in rows.splitlines():
            assert row in origin, f"{page.name}: not in {source}: {row}"


def test_readme_fits_a_page_and_begins_with_what_it_is_for():
    text = (pages.ROOT / "README.md").read_bytes()
    assert len(text) <= 12_000
    start = "\n".join(text.decode().splitlines()[:30])
    assert "![" in start and re.search(r"\*\*\d+ times fewer bytes", start)
