"""The statements of a Python file."""

import ast
import collections
import functools

# Fields of a node that hold statements, or nodes that do, in the order of ast.walk.
_BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")


@functools.lru_cache(maxsize=1)  # checkers ask for a file's one after the other
def statements(text: str) -> list[ast.AST]:
    """All statements, nested ones too, outer ones first. ast.walk would also look through the
    expressions, which takes ten times as long."""
    found = []
    waiting: collections.deque[ast.AST] = collections.deque([ast.parse(text)])
    while waiting:
        node = waiting.popleft()
        found.append(node)
        for block in _BLOCKS:
            waiting.extend(getattr(node, block, ()))
    return found
