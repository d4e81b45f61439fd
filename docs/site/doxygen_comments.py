"""Doxygen's input filter: the comments of include/deltawire as Doxygen wants to see them.

The headers are written for readers: plain `//` above a declaration, or behind it. Doxygen takes
`///` and `///<`. The first comment of a file describes the file.

    doxygen_comments.py HEADER      prints the header for Doxygen
"""

import re
import sys

_ALONE = re.compile(r"^(\s*)// ?(.*)$")
_BEHIND = re.compile(r"^(.*?\S)(\s+)// ?(.*)$")
_C_ALONE = re.compile(r"^(\s*)/\* ?(?!\*)")
_C_BEHIND = re.compile(r"^(.*\S\s+)/\* ")


def escaped(text: str) -> str:
    """A line of prose, so that Doxygen sees no commands, tags or links in it."""
    if text.startswith("  "):
        return text  # an indented example
    pieces = text.split("`")
    pieces[::2] = [re.sub(r"([<>@\\#&%*_~|\[\]])", r"\\\1", piece) for piece in pieces[::2]]
    return "`".join(pieces)


def cpp_lines(lines: list[str]) -> list[str]:
    """`//` to `///`, and to `///<` behind code and where such a comment goes on."""
    made, column, in_head = [], None, True
    for line in lines:
        alone, behind = _ALONE.match(line), _BEHIND.match(line)
        if alone:
            goes_on = column is not None and len(alone[1]) >= column
            mark = "///<" if goes_on else "///"
            if in_head and not made:
                made.append("/// \\file")
            made.append(f"{alone[1]}{mark} {escaped(alone[2])}".rstrip())
            column = column if goes_on else None
            continue
        in_head = False
        if behind and '"' not in behind[3] and not line.startswith("#") and "}  // " not in line:
            column = len(behind[1] + behind[2])
            made.append(f"{behind[1]}{behind[2]}///< {escaped(behind[3])}")
        else:
            column = None
            made.append(line)
    return made


def c_lines(lines: list[str]) -> list[str]:
    """`/*` to `/**`, and to `/**<` behind code; headings between groups stay what they are."""
    made = []
    for line in lines:
        if "/* ----" in line:
            made.append(line)
        elif _C_ALONE.match(line):
            opened = _C_ALONE.sub(r"\1/** ", line)
            made.append(opened if made else opened.replace("/** ", "/** \\file\n * ", 1))
        else:
            made.append(_C_BEHIND.sub(r"\1/**< ", line))
    return made


def main(path: str) -> None:
    """Prints the header."""
    with open(path, encoding="utf-8") as header:
        lines = header.read().splitlines()
    is_c = lines[0].startswith("/*")
    print("\n".join(c_lines(lines) if is_c else cpp_lines(lines)))


if __name__ == "__main__":
    main(sys.argv[1])
