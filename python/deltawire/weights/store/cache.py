"""A folder in which a reader keeps what it has downloaded from a store."""

from pathlib import Path

from deltawire.weights.store import manifest as manifests
from deltawire.weights.store.manifest import StoredFile

PARTIAL = ".partial"  # ends the name of a file that has not arrived whole


class Cache:
    """Downloads by their names; without a folder there are none.

    Attributes:
        folder: where they are, or None.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def forget(self, file: StoredFile) -> None:
        """Drops a file, as it turned out to be damaged."""
        if self.folder is not None:
            (self.folder / file.name).unlink(missing_ok=True)

    def forget_all_but(self, names: set[str]) -> None:
        """Drops files of stores that the manifest doesn't name any more."""
        if self.folder is None or not self.folder.is_dir():
            return
        for path in self.folder.iterdir():
            name = path.name.removesuffix(PARTIAL)
            if manifests.is_own_name(name) and name not in names:
                path.unlink(missing_ok=True)
