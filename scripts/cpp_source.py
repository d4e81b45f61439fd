"""Reads C++ just well enough to find includes and the lengths of functions.

Not a compiler: it blanks comments and literals, then matches braces.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.MULTILINE)

# A comment, a raw string, a string, or a character. An apostrophe inside a number (1'000) is none.
LITERAL = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"'
    r"|\"(?:\\.|[^\"\\\n])*\"|(?<![0-9A-Za-z_])(?:u8|[uUL])?'(?:\\.|[^'\\\n])+'",
    re.DOTALL,
)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.)*", re.MULTILINE | re.DOTALL)
SCOPE = re.compile(r"^(?:inline\s+)?namespace\b|^extern\s*$|^export\b")
TEMPLATE = re.compile(r"^template\s*<[^{}]*?>\s*(?=class\b|struct\b|union\b)")
TYPE = re.compile(
    r"^(?:typedef\s+)?(?:class|struct|union|enum)\b(?![^{]*\)\s*(?:const|noexcept)?\s*$)"
)
# `Foo(int x) : a_` before a brace: a member is initialized here, the body comes later.
MEMBER_INITIALIZER = re.compile(r"\).*(?<!:):(?!:).*[\w>]\s*$", re.DOTALL)


@dataclass(frozen=True)
class Include:
    """One #include: its line, its target, and whether it stands in quotes."""

    line: int
    target: str
    quoted: bool


@dataclass(frozen=True)
class Function:
    """A function's name as written, and its first and last line."""

    name: str
    first: int
    last: int

    @property
    def lines(self) -> int:
        """How many lines it takes, signature and closing brace included."""
        return self.last - self.first + 1


def _blank(match: re.Match) -> str:
    return re.sub(r"[^\n]", " ", match.group())


def code_only(text: str) -> str:
    """The text with comments, literals and preprocessor lines blanked; line numbers stay."""
    return DIRECTIVE.sub(_blank, LITERAL.sub(_blank, text))


def includes(text: str) -> Iterator[Include]:
    """All includes outside comments."""
    visible = re.sub(r"//[^\n]*|/\*.*?\*/", _blank, text, flags=re.DOTALL)
    for match in INCLUDE.finditer(visible):
        line = visible.count("\n", 0, match.start(1)) + 1
        yield Include(line, match.group(2), match.group(1) == '"')


class _Scanner:
    """Walks over the braces. Outside of functions it remembers the text since the last `;`, `{` or
    `}`: that text says what the next brace opens."""

    def __init__(self, code: str):
        self.code = code
        self.line = 1
        self.head = ""
        self.head_line = 1
        self.parens = 0
        self.open: list[str] = []  # "scope", "value" or "function", one for each open brace
        self.inside = 0  # braces open since the current function's own
        self.found: list[Function] = []

    def run(self) -> list[Function]:
        for character in self.code:
            if self.inside:
                self._in_function(character)
            else:
                self._outside(character)
            if character == "\n":
                self.line += 1
        return self.found

    def _in_function(self, character: str) -> None:
        if character == "{":
            self.inside += 1
        elif character == "}":
            self.inside -= 1
            if self.inside == 0:
                self.found.append(Function(_name(self.head), self.head_line, self.line))
                self.head = ""

    def _outside(self, character: str) -> None:
        if character == "{":
            self._open_brace()
        elif character == "}":
            kind = self.open.pop() if self.open else "scope"
            self.head = self.head + "}" if kind == "value" else ""
        elif character == ";" and self.parens == 0:
            self.head = ""
        else:
            self.parens += {"(": 1, ")": -1}.get(character, 0)
            if not self.head and not character.isspace():
                self.head_line = self.line
            if self.head or not character.isspace():
                self.head += character

    def _open_brace(self) -> None:
        head = re.sub(r"^(?:public|private|protected)\s*:(?!:)\s*", "", self.head.strip())
        kind = _kind(head, self.parens)
        if kind == "function":
            skipped = self.head.strip().removesuffix(head).count("\n") if head else 0
            self.head_line += skipped
            self.head = head
            self.inside = 1
            return
        self.open.append(kind)
        self.head = self.head + "{" if kind == "value" else ""


def _kind(head: str, parens: int) -> str:
    if parens > 0:
        return "value"
    if not head or SCOPE.match(head) or TYPE.match(TEMPLATE.sub("", head)):
        return "scope"
    if MEMBER_INITIALIZER.search(head):
        return "value"
    lambda_head = re.search(r"=.*\]\s*(?:mutable|constexpr|noexcept|\s)*$", head, re.DOTALL)
    return "function" if ")" in head or lambda_head else "value"


def _name(head: str) -> str:
    match = re.match(r"(?:TEST|TEST_F|TEST_P|RC_GTEST_\w+)\s*\([^)]*", head)
    if match:
        return re.sub(r"\s+", " ", match.group()) + ")"
    head = re.sub(r"__attribute__\s*\(\(.*?\)\)\)?", "", head)
    match = re.search(r"(operator\s*[^\s(]+|[\w:~]+)\s*\(", head) or re.search(r"(\w+)\s*=", head)
    return match.group(1) if match else "a function"


def functions(text: str) -> list[Function]:
    """All functions with a body: members, tests (TEST macros) and lambdas at namespace scope too.

    Other lambdas and local classes belong to the function that they stand in.
    """
    return _Scanner(code_only(text)).run()
