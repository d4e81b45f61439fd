"""The mutants of a source file: every single-line fault that the rules below can make of its text.

The rules know no more of the language than they need. C++ is read as text whose comments, literals
and preprocessor lines are blanked, in the layout of clang-format, which puts spaces around binary
operators; the compiler refuses mutants that make no sense. Python is read through its syntax tree.
"""

import ast
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import cpp_source


@dataclass(frozen=True)
class Fault:
    """The number of a line, from 1, and its text with the fault."""

    line: int
    rule: str
    old: str
    new: str


def swaps_of(relations: str, arithmetic: str, logic: str) -> dict[str, tuple[str, str]]:
    """By operator, the rule that replaces it and by what; "_" stands for a space in one."""
    pairs = {"relation": relations, "arithmetic": arithmetic, "logic": logic}
    return {
        old.replace("_", " "): (rule, new.replace("_", " "))
        for rule, text in pairs.items()
        for old, new in map(str.split, text.split(", "))
    }


SWAPS = swaps_of(
    "< <=, <= <, > >=, >= >, == !=, != ==",
    "+ -, - +, * /, / *, % /, << >>, >> <<, & |, | &, ^ |, "
    "+= -=, -= +=, *= +=, |= &=, &= |=, ^= |=, <<= >>=, >>= <<=",
    "&& ||, || &&",
)
PYTHON_SWAPS = swaps_of(
    "< <=, <= <, > >=, >= >, == !=, != ==, is is_not, is_not is, in not_in, not_in in",
    "+ -, - +, * /, / *, // *, % //, & |, | &",
    "and or, or and",
)
OPERATOR = re.compile(
    r"(?<!\S)(" + "|".join(map(re.escape, sorted(SWAPS, key=len, reverse=True))) + r")(?!\S)"
)
NUMBER = re.compile(r"(?<![\w.'])(0[xX][0-9a-fA-F']+|\d[\d']*)")
WORDS = {"true": "false", "false": "true", "min": "max", "max": "min"}
WORD = re.compile(r"\b(true|false|(?:min|max)(?=[(<](?!\))))\b")
STEP = re.compile(r"^\s*(?:(\+\+|--)[\w.>\[\]-]+|[\w.>\[\]-]+(\+\+|--));\s*$")
CONDITION = re.compile(r"\b(?:if|while)(?: constexpr)? ?\(")
EARLY_RETURN = re.compile(r"\) (return\b[^;]*);\s*$")
STATEMENT = re.compile(
    r"^\s*(?:return\b[^{}]*|break|continue"
    r"|[\w.>:*()-]+(?:\[[^;=]*\][\w.>-]*)* (?:[-+*/|&^]|<<|>>)?= [^{};]*"  # an assignment
    r"|[\w.>:-]+\([^{};]*\));\s*$"  # a call
)
# Lines without behaviour, or whose behaviour no test should check.
NO_BEHAVIOUR = re.compile(
    r"^\s*(?:using|namespace|template|friend|extern|typedef|class|struct|enum)\b"
    r"|\b(?:reserve|shrink_to_fit|prefetch|__builtin_prefetch|unreachable)\("
)
# A fault in one can't be seen from outside.
ASSERTION = re.compile(r"\b(?:static_)?assert\s*\([^;]*;")


def faults(path: str, text: str) -> list[Fault]:
    """All faults of a file, in the order of its lines."""
    found = _python(text) if path.endswith(".py") else _cpp(text)
    lines = text.split("\n")
    made = {
        Fault(number, rule, lines[number - 1], new)
        for number, rule, new in found
        if new != lines[number - 1]
    }
    return sorted(made, key=lambda fault: (fault.line, fault.rule, fault.new))


def _put(line: str, begin: int, end: int, new: str) -> str:
    return line[:begin] + new + line[end:]


def _cpp(text: str) -> Iterator[tuple[int, str, str]]:
    code = ASSERTION.sub(cpp_source.blanked, cpp_source.code_only(text)).split("\n")
    before = ";"  # the last character of the code before this line
    for number, (shown, line) in enumerate(zip(code, text.split("\n"), strict=True), 1):
        if NO_BEHAVIOUR.search(shown):
            continue
        for rule, new in _in_line(shown, line):
            yield number, rule, new
        match = EARLY_RETURN.search(shown)
        if match and CONDITION.search(shown):
            yield number, "dropped statement", _put(line, match.start(1), match.end(1), "")
        if before in ";{}:" and STATEMENT.match(shown):
            indent = len(shown) - len(shown.lstrip())
            yield number, "dropped statement", line[:indent] + ";"
        before = shown.rstrip()[-1:] or before


def _in_line(shown: str, line: str) -> Iterator[tuple[str, str]]:
    """All faults of one line of C++; `shown` is the line without comments and literals."""
    for match in OPERATOR.finditer(shown):
        beside = line[: match.start()].rstrip()[-1:] + line[match.end() :].lstrip()[:1]
        if match[1] != "+" or '"' not in beside:  # no text is subtracted
            rule, new = SWAPS[match[1]]
            yield rule, _put(line, *match.span(), new)
    for match in NUMBER.finditer(shown):
        digits = match[1].replace("'", "")
        if digits.lower().startswith("0x"):
            new = hex(int(digits, 16) ^ 1)
        else:
            new = str(int(digits) + 1)
            if int(digits) > 1:
                yield "constant", _put(line, *match.span(), str(int(digits) - 1))
        yield "constant", _put(line, *match.span(), new)
    for match in WORD.finditer(shown):
        rule = "minimum" if match[1] in ("min", "max") else "truth"
        yield rule, _put(line, *match.span(), WORDS[match[1]])
    if step := STEP.match(shown):
        group = 1 if step[1] else 2
        yield "arithmetic", _put(line, *step.span(group), "--" if step[group] == "++" else "++")
    for match in CONDITION.finditer(shown):
        end = _closing(shown, match.end())
        begin = max(match.end(), shown.rfind("; ", match.end(), end or 0) + 2)
        if end and "=" not in re.sub(r"[=!<>]=", "", shown[begin:end]):  # no declaration
            yield "condition", _put(line, begin, end, f"!({line[begin:end]})")


def _closing(code: str, begin: int) -> int | None:
    """Where the parenthesis opened just before `begin` closes; None if on a later line."""
    depth = 1
    for at in range(begin, len(code)):
        depth += {"(": 1, ")": -1}.get(code[at], 0)
        if depth == 0:
            return at
    return None


DROPPED = (ast.AugAssign, ast.Return, ast.Break, ast.Continue, ast.Raise)


class _Python(ast.NodeVisitor):
    """Collects (line, rule, new line). Lines are bytes: the syntax tree's columns count bytes."""

    def __init__(self, text: str):
        self.lines = [line.encode() for line in text.split("\n")]
        self.found: list[tuple[int, str, str]] = []
        self.inside = ""  # the current function, "" outside of all functions

    def replace(self, rule: str, line: int, begin: int, end: int, new: bytes) -> None:
        old = self.lines[line - 1]
        self.found.append((line, rule, (old[:begin] + new + old[end:]).decode()))

    def replace_node(self, rule: str, node: ast.expr | ast.stmt, new: str) -> None:
        if node.lineno == node.end_lineno:
            self.replace(rule, node.lineno, node.col_offset, node.end_col_offset, new.encode())

    def swap(self, left: ast.expr, right: ast.expr) -> None:
        """Swaps the operator between two expressions of one line."""
        line = left.end_lineno
        between = self.lines[line - 1][left.end_col_offset : right.col_offset]
        old = between.strip(b" ()")
        if line == right.lineno and old.decode() in PYTHON_SWAPS:
            rule, new = PYTHON_SWAPS[old.decode()]
            begin = left.end_col_offset + between.index(old)
            self.replace(rule, line, begin, begin + len(old), new.encode())

    def negate(self, test: ast.expr) -> None:
        if test.lineno == test.end_lineno:
            text = self.lines[test.lineno - 1][test.col_offset : test.end_col_offset].decode()
            self.replace_node("condition", test, f"(not ({text}))")

    def may_drop(self, node: ast.AST) -> bool:
        """Whether to drop a statement; not one that first binds a name: any test sees that."""
        if isinstance(node, ast.Expr):
            return isinstance(node.value, ast.Call | ast.Await)
        if isinstance(node, ast.Assign):
            bound = any(isinstance(target, ast.Name | ast.Tuple) for target in node.targets)
            return not bound and self.inside != "__init__"
        return isinstance(node, DROPPED)

    def visit(self, node: ast.AST) -> None:
        if self.inside and self.may_drop(node):
            self.replace_node("dropped statement", node, "pass")
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            self.negate(node.test)
        super().visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        around, self.inside = self.inside, node.name
        for statement in node.body:
            self.visit(statement)
        self.inside = around

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:  # annotations have no behaviour
            self.visit(node.value)

    def visit_Assert(self, node: ast.Assert) -> None:
        """Leaves assertions as they are: a fault in one can't be seen from outside."""

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for left, right in itertools.pairwise(operands):
            self.swap(left, right)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for left, right in itertools.pairwise(node.values):
            self.swap(left, right)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        sides = (node.left, node.right)
        text = any(isinstance(side, ast.JoinedStr) for side in sides) or any(
            isinstance(side, ast.Constant) and isinstance(side.value, str | bytes) for side in sides
        )
        if not text:
            self.swap(*sides)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self.replace_node("truth", node, str(not node.value))
        elif isinstance(node.value, int):
            for new in {node.value + 1, max(0, node.value - 1)} - {node.value}:
                self.replace_node("constant", node, str(new))
        elif isinstance(node.value, float):
            self.replace_node("constant", node, repr(node.value + 1))

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
            self.replace_node("minimum", node.func, WORDS[node.func.id])
        self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Skips f-strings: before Python 3.12 the columns inside them are wrong."""


def _python(text: str) -> Iterable[tuple[int, str, str]]:
    visitor = _Python(text)
    visitor.visit(ast.parse(text))
    return visitor.found
