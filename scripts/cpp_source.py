"""Reads C++ just well enough to find includes, the lengths of functions and the members of classes.

Not a compiler: it blanks comments and literals, then matches braces.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.MULTILINE)

# A comment, a raw string, a string, or a character; not the apostrophe inside a number (1'000).
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
ACCESS = re.compile(r"^(?:(?:public|private|protected)\s*:(?!:)\s*)+")
CLASS = re.compile(r"^(?:typedef\s+)?(?:class|struct|union)\b")
ATTRIBUTE = re.compile(r"\[\[[^\]]*\]\]|\b(?:alignas|decltype|noexcept|explicit)\s*\([^()]*\)")
# These are not members: types, friends, defaulted and deleted functions, and constants, which are
# no state.
MARKS = re.compile(r"[{}();]")
NO_MEMBER = re.compile(
    r"^(?:using|typedef|friend|enum|class|struct|union|static_assert)\b"
    r"|^static constexpr\b[^(]*(?:=|$)"
    r"|=\s*(?:delete|default)$|^template\s*<.*>\s*(?:friend|using|class|struct)\b",
    re.DOTALL,
)
# `Foo(int x) : a_` before a brace: a member is initialized here, the body comes later.
MEMBER_INITIALIZER = re.compile(r"\).*(?<!:):(?!:).*[\w>]\s*$", re.DOTALL)


@dataclass(frozen=True)
class Include:
    """One #include: its line, its target, and whether the target is in quotes."""

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
        """Its number of lines, signature and closing brace included."""
        return self.last - self.first + 1


@dataclass
class Class:
    """A class, struct or union with a body: its name within its namespace, which has "(unnamed)" in
    it where no other file sees it, its line, and its methods and fields, one for each
    declaration."""

    name: str
    namespace: str
    line: int
    methods: int = 0
    fields: int = 0

    @property
    def members(self) -> int:
        """Methods and fields."""
        return self.methods + self.fields


@dataclass
class Source:
    """What was found in a file."""

    functions: list[Function] = field(default_factory=list)
    classes: list[Class] = field(default_factory=list)


def blanked(match: re.Match) -> str:
    """The match as spaces; line breaks stay."""
    return re.sub(r"[^\n]", " ", match.group())


def code_only(text: str) -> str:
    """The text with comments, literals and preprocessor lines blanked; line numbers stay."""
    return DIRECTIVE.sub(blanked, LITERAL.sub(blanked, text))


def includes(text: str) -> Iterator[Include]:
    """All includes outside comments."""
    visible = re.sub(r"//[^\n]*|/\*.*?\*/", blanked, text, flags=re.DOTALL)
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
        self.around: list[Class | None] = []  # the class that each of them opens, if any
        self.namespaces: list[str] = []  # the name that each of them opens; "" for all others
        self.inside = 0  # braces open since the current function's own
        self.found = Source()

    def run(self) -> Source:
        at = 0
        for mark in MARKS.finditer(self.code):
            self._skip(self.code[at : mark.start()])
            if self.inside:
                self._in_function(mark[0])
            else:
                self._outside(mark[0])
            at = mark.end()
        return self.found

    def _skip(self, text: str) -> None:
        """Text without a mark."""
        if not self.inside:
            if self.head:
                self.head += text
            elif begun := text.lstrip():
                self.head = begun
                self.head_line = self.line + text[: -len(begun)].count("\n")
        self.line += text.count("\n")

    def _in_function(self, character: str) -> None:
        if character == "{":
            self.inside += 1
        elif character == "}":
            self.inside -= 1
            if self.inside == 0:
                self.found.functions.append(Function(_name(self.head), self.head_line, self.line))
                if self.around and self.around[-1] and not NO_MEMBER.search(_bare(self.head)):
                    self.around[-1].methods += 1
                self.head = ""

    def _outside(self, character: str) -> None:
        if character == "{":
            self._open_brace()
        elif character == "}":
            kind = self.open.pop() if self.open else "scope"
            if self.around:
                self.around.pop()
                self.namespaces.pop()
            self.head = self.head + "}" if kind == "value" else ""
        elif character == ";" and self.parens == 0:
            if self.around and self.around[-1]:
                _count(self.head, self.around[-1])
            self.head = ""
        else:
            self.parens += {"(": 1, ")": -1}.get(character, 0)
            if not self.head:
                self.head_line = self.line
            self.head += character

    def _open_brace(self) -> None:
        head = ACCESS.sub("", self.head.strip())
        kind = _kind(head, self.parens)
        if kind == "function":
            skipped = self.head.strip().removesuffix(head).count("\n") if head else 0
            self.head_line += skipped
            self.head = head
            self.inside = 1
            return
        self.open.append(kind)
        self.around.append(self._class(head) if kind == "scope" else None)
        named = re.match(r"(?:inline\s+)?namespace\b\s*(.*)", head)
        self.namespaces.append((named[1] or "(unnamed)") if named else "")
        self.head = self.head + "{" if kind == "value" else ""

    def _class(self, head: str) -> Class | None:
        bare = _bare(TEMPLATE.sub("", head))
        if not CLASS.match(bare):
            return None
        named = re.split(r"(?<!:):(?!:)", bare)[0]
        words = [word for word in named.split()[1:] if word != "final"]
        outer = next((each.name + "::" for each in reversed(self.around) if each), "")
        name = outer + (words[-1] if words else "(unnamed)")
        namespace = "::".join(filter(None, self.namespaces))
        self.found.classes.append(Class(name, namespace, self.line))
        return self.found.classes[-1]


def _bare(declaration: str) -> str:
    """A declaration without access, attributes and the arguments of templates."""
    text = ATTRIBUTE.sub("", ACCESS.sub("", declaration.strip()))
    text = re.sub(r"\boperator\s*[^\s\w(]+", "operator_", text)
    while (less := re.sub(r"(?<=\w)<[^<>;{}]*>", "", text)) != text:
        text = less
    return text.strip()


def _count(declaration: str, into: Class) -> None:
    """Counts a declaration that ended with a semicolon in a class's body."""
    bare = _bare(declaration)
    if not bare or NO_MEMBER.search(bare):
        return
    declared = re.split(r"=|\{", bare)[0]
    if "(" in declared:
        into.methods += 1
        return
    values = re.sub(r"\{[^{}]*\}|\([^()]*\)", "", bare)
    into.fields += 1 + len(re.findall(r",\s*\w+\s*(?=,|=|\[|$)", values))


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


def read(text: str) -> Source:
    """All functions and classes that have a body. Member functions, tests (TEST macros) and lambdas
    at namespace scope are functions, too.

    Other lambdas and local classes count as part of the function around them.
    """
    return _Scanner(code_only(text)).run()
