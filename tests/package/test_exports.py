"""The libraries export the API: all symbols that the public headers mark, and no others."""

import re
from pathlib import Path

import package_build as build

HEADERS = build.ROOT / "include" / "deltawire"
DECLARATION = re.compile(r"^(?!inline|template|using|constexpr)[A-Za-z][\w:<>, *&]*[ >&*](\w+)\(")
CLASS = re.compile(r"^(?:class|struct) DELTAWIRE_API (\w+)", re.MULTILINE)
# A class that compiles something of its own: a member function that ends without a body.
OWN_CODE = re.compile(
    r"^ +(?:static |explicit |~)?\w[\w:<>, *&]*\([^{}]*\)(?: const)?(?: noexcept)?;", re.MULTILINE
)


def headers(pattern: str) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(HEADERS.glob(pattern))}


def exported(library: Path) -> list[str]:
    lines = build.run("nm", "-D", "--defined-only", "-C", library).splitlines()
    return [line.split(" ", 2)[2] for line in lines]


def marked_functions() -> set[str]:
    everything = "\n".join(headers("*.h").values())
    return set(re.findall(r"^DELTAWIRE_API [^;(]*?(\w+)\(", everything, re.MULTILINE))


def marked_classes() -> set[str]:
    return {name for text in headers("*.h").values() for name in CLASS.findall(text)}


def test_the_shared_library_shows_the_api_alone():
    classes, functions = marked_classes(), marked_functions()
    for symbol in exported(build.BUILD / "lib" / "libdeltawire.so"):
        name = re.sub(r"^(typeinfo name|typeinfo|vtable) for ", "", symbol)
        if name.startswith("deltawire_"):
            assert name in functions, symbol
            continue
        first, *rest = re.match(r"deltawire::([\w:~]+)", name)[1].split("::")
        assert first in (classes if rest or symbol != name else functions), symbol
        assert len(rest) <= 1, f"{symbol} is nested in a class: hide it (DELTAWIRE_HIDDEN)"


def test_every_function_that_is_marked_is_in_the_library():
    there = {
        re.sub(r"\[.*|\(.*", "", name).removeprefix("deltawire::")
        for library in ("deltawire", "deltawire_mpi")
        for name in exported(build.BUILD / "lib" / f"lib{library}.so")
    }
    assert marked_functions() - there == set()


def test_every_declaration_is_marked():
    for name, text in headers("*.h").items():
        for line in text.splitlines():
            found = DECLARATION.match(line)
            if line.endswith("{"):  # a template, or its continuation
                continue
            if found and name != "export.h":
                assert line.startswith("DELTAWIRE_API "), (
                    f"{name}: {found[1]} is hidden in the library"
                )
        for head, body in re.findall(r"^((?:class|struct) [^;{]+)\{\n(.*?)^\};", text, re.M | re.S):
            own = OWN_CODE.search(re.sub(r"//.*", "", body))
            assert not own or "DELTAWIRE_API" in head, f"{name}: {head}has {own[0].strip()}"


def test_the_library_for_mpi_shows_its_own_functions_alone():
    symbols = exported(build.BUILD / "lib" / "libdeltawire_mpi.so")
    names = {re.sub(r"\(.*", "", symbol) for symbol in symbols if " for " not in symbol}
    assert names == {"deltawire::has_mpi", "deltawire::connect_mpi"}


def test_the_python_extension_shows_nothing_of_the_library():
    """Otherwise another version in the same process could replace its functions."""
    (extension,) = (build.BUILD / "python" / "deltawire").glob("_core*.so")
    symbols = exported(extension)
    assert "PyInit__core" in symbols
    assert not [symbol for symbol in symbols if "deltawire" in symbol]


def test_wheels_call_nothing_private_of_python():
    """From Python 3.12 on they have the stable ABI alone, which this build has not."""
    for source in (build.ROOT / "python" / "src").iterdir():
        text = re.sub(r"#ifdef Py_LIMITED_API.*?#endif", "", source.read_text(), flags=re.S)
        assert not re.findall(r"\b_Py[A-Z]\w+", text), source.name
