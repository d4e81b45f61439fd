"""The statements of a Python file, and what it leaves to torch's defaults."""

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


# torch's functions that take the default dtype and device, where they are not told others.
_FACTORIES = {
    *("arange", "as_tensor", "asarray", "empty", "empty_strided", "eye", "full", "linspace"),
    *("logspace", "ones", "rand", "randint", "randn", "randperm", "scalar_tensor"),
    *("sparse_coo_tensor", "tensor", "zeros"),
}


def left_to_defaults(text: str) -> list[tuple[int, str, str]]:
    """(line, function, "dtype=" or "device=") of each call of torch that leaves one of them out: a
    program may set other defaults, and the core takes memory for what it is said to be."""
    return [
        (node.lineno, f"torch.{node.func.attr}", f"{name}=")
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "torch"
        and node.func.attr in _FACTORIES
        for name in ("dtype", "device")
        if name not in {each.arg for each in node.keywords}
    ]
