"""Commands in the pages can be given: programs, options, targets and variables exist.

They are not run: most measure for minutes. A `...` stands for further arguments, and a name in
capitals for what the reader has.
"""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pages

COMMANDS = [found for page in pages.all_pages() for found in pages.commands_of(page)]
PROGRAM = pages.ROOT / "build" / "release" / "deltawire"
RULES = ("README", "docs/start/choose-a-codec", "docs/results/speed", "docs/guides/planner")
BEFORE = r"^(?:sudo (?:-E )?)?(?:[A-Z_]+=\S+ )*(?:nice -n \d+ )?"


def words_of(text: str) -> list[str]:
    """The arguments, of `a|b` the first, without the brackets around what may be left out."""
    text = re.sub(r"--\S+ \.\.\.", "", text)  # an option whose value the reader knows
    words = [word for word in shlex.split(text, comments=True) if word != "..."]
    return ["1" if word == "N" else word.strip("[]").partition("|")[0] for word in words]


def has_parser(path: Path) -> bool:
    """Whether a program has argparse read its arguments, itself or in its package."""
    files = path.parent.glob("*.py") if path.name == "__main__.py" else [path]
    return any("parse_args(" in file.read_text() for file in files)


def test_programs_take_the_arguments_that_pages_give():
    program = re.compile(
        BEFORE + r"(?:\S*python3? )?(?:-m (lab[\w.]+)|((?:bench|scripts)/\w+\.py))(.*)"
    )
    found = {match.groups(): place for place, line in COMMANDS if (match := program.match(line))}
    assert len(found) > 100
    for place, line in COMMANDS:
        if ":" in place and (bare := re.match(BEFORE + r"((?:bench|scripts)/\S+\.py)", line)):
            assert (pages.ROOT / bare[1]).stat().st_mode & 0o100, f"{place}: python {bare[1]}"
    gone = {path for page in pages.all_pages() for path in pages.programs_of_history(page)}
    said, wanted = [], []
    for (module, script, rest), place in found.items():
        places = [script] if script else pages.places_of(module)
        if gone.intersection(places):
            continue
        there = [path for path in map(pages.ROOT.joinpath, places) if path.is_file()]
        assert there, f"{place}: there is no {module or script}"
        if not has_parser(path := there[0]):
            continue
        if words := words_of(rest):
            said.append(f"{place}: {module or script}{rest}")
            wanted.append((str(path), module, words))
    command = [sys.executable, "-W", "ignore", Path(__file__).with_name("parse_commands.py")]
    given = json.dumps(wanted)
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=True)
    reasons = zip(said, json.loads(done.stdout), strict=True)
    wrong = [f"{command}: {why}" for command, why in reasons if why]
    assert not wrong, "\n".join(wrong)


def test_the_program_has_the_commands_and_options_that_pages_give():
    helps: dict[tuple[str, ...], str] = {}

    def help_of(*command: str) -> str:
        if command not in helps:
            done = subprocess.run([PROGRAM, *command, "--help"], capture_output=True, text=True)
            helps[command] = done.stdout if done.returncode == 0 else ""
        return helps[command]

    words = r"(?!door 1)([a-z][a-z-]*)(?: ([a-z]+)\b)?(.*)"  # but a handshake's label
    program = re.compile(BEFORE + r"(?:build/release/)?deltawire " + words)
    found = [(place, match) for place, line in COMMANDS if (match := program.match(line))]
    assert len(found) > 80
    for place, match in found:
        known = re.search(rf"Usage: deltawire {match[1]}\s", help_of(match[1]))
        assert known, f"{place}: there is no 'deltawire {match[1]}'"
        for option in re.findall(r"(?<=\s)--[a-z][a-z-]*", match[3].split("#")[0]):
            texts = help_of(match[1]) + (help_of(match[1], match[2]) if match[2] else "")
            assert re.search(rf"{option}(?![a-z-])", texts), f"{place}: no {option}: '{match[0]}'"


def test_pages_say_when_it_pays_in_the_planners_words():
    told = subprocess.run([PROGRAM, "plan", "--help"], capture_output=True, text=True, check=True)
    rule = re.search(r"^Compression pays .*$", told.stdout, re.MULTILINE)[0]
    texts = {page: (pages.ROOT / f"{page}.md").read_text() for page in RULES}
    for page, text in texts.items():
        assert rule in " ".join(re.sub(r"[`*]", "", text).split()), page
    others = r"(?:below|above|from) about \d+ .bit/s"
    for page in pages.users_pages():
        assert not re.search(others, page.read_text()), f"{page} has another threshold"


def test_compiled_programs_have_the_options_that_pages_give():
    program = re.compile(BEFORE + r"(?:build/\w+/)?(bench|src/simulation|)/?(\w+)((?: .*)?)")
    sources = {path.stem: [path] for path in (pages.ROOT / "bench").glob("*.cc")}
    sources["coding"] = (pages.ROOT / "bench" / "coding").glob("*.cc")
    sources["deltawire_simulate"] = [pages.ROOT / "src/simulation/simulate_main.cc"]
    known = {name: "".join(map(Path.read_text, paths)) for name, paths in sources.items()}
    count = 0
    for place, line in COMMANDS:
        match = program.match(line)
        if match and match[2] in known and (match[1] or match[3].startswith(" --")):
            options = re.findall(r"(?<=[\s\"[])--[a-z_-]+", match[3].split("#")[0])
            for option in options:
                theirs = match[2] == "coding" and option.startswith("--benchmark_")
                cli11s = option == "--help" and "CLI::App" in known[match[2]]
                ours = re.search(rf'"{option}["=]', known[match[2]])
                assert ours or theirs or cli11s, f"{place}: no {option}: {line}"
            count += len(options)
    assert count > 20


def test_make_and_cmake_have_what_pages_name():
    makefile = (pages.ROOT / "Makefile").read_text()
    presets = (pages.ROOT / "CMakePresets.json").read_text()
    cmake = [*map(pages.ROOT.joinpath, ("CMakeLists.txt", "apps/CMakeLists.txt"))]
    declared = "".join(map(Path.read_text, [*cmake, *(pages.ROOT / "cmake").glob("*.cmake")]))
    for place, line in COMMANDS:
        if match := re.match(BEFORE + r"make ([a-z-]+)", line):
            assert f"\n{match[1]}:" in makefile, f"{place}: no {match[0]}"
        for preset in re.findall(r"--preset ([\w-]+)", line):
            assert f'"name": "{preset}"' in presets, f"{place}: no preset {preset}"
        for option in re.findall(r"-D(DELTAWIRE_\w+)=", line):
            assert re.search(rf"\b{option}\b", declared), f"{place}: no option {option}"


def test_what_an_evaluator_is_told_to_type_exists():
    typed = [line for place, line in COMMANDS if place.startswith("ARTIFACT.md:")]
    assert len(typed) > 20
    named = {w for line in typed for w in re.findall(r"\b(?:tests|docs|bench)/[\w/.-]+", line)}
    assert len(named) > 5
    for each in named:
        assert (pages.ROOT / each).exists(), f"ARTIFACT.md: there is no {each}"
    assert len((pages.ROOT / "ARTIFACT.md").read_text().splitlines()) <= 200
