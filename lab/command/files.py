"""Files that readers find whole at any moment, and the machine's name in them."""

import json
import platform
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Writes next to the file and renames: a reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def json_in_rows(content: dict, name: str) -> str:
    """An object whose list `name` has a line for each of its elements, at the end."""
    head = {key: value for key, value in content.items() if key != name}
    lines = ",\n".join(map(json.dumps, content[name]))
    return json.dumps(head, indent=1)[:-2] + f',\n "{name}": [\n{lines}\n]}}\n'


def processor() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
