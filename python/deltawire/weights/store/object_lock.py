"""The lock of a writer on an object store: an object that names its owner.

It is made by a request that fails if the object exists, where the filesystem has one (fsspec's mode
"create"); elsewhere two writers that start within the same moment are told apart by what they read
back. A writer looks at it again before each manifest, so one that was taken for dead and replaced
finds out; only the time of one request is left in which it may not.
"""

from deltawire.errors import make_error
from deltawire.weights.store import writer_name
from deltawire.weights.store.writer_name import WriterName


class ObjectLock:
    """Held from construction until `release`."""

    def __init__(self, system, path: str, place: str, take_over: bool) -> None:
        self._system = system
        self._path = path
        self._place = place
        self._own = writer_name.own_name()
        owner = self._owner()
        if owner is not None and not take_over and not self._own.knows_to_be_dead(owner):
            raise make_error(
                "State",
                f"{place} already has a writer, {owner}: a store has one at a time; close that "
                "one, or open the store with take_over=True if it is dead",
            )
        data = self._own.to_bytes()
        if owner is None:
            try:
                system.pipe_file(path, data, mode="create")
            except (FileExistsError, NotImplementedError, TypeError, ValueError) as error:
                if not isinstance(error, FileExistsError):
                    system.pipe_file(path, data)
        else:
            system.pipe_file(path, data)
        self.check()

    def _owner(self) -> WriterName | None:
        try:
            data = self._system.cat_file(self._path)
        except FileNotFoundError:
            return None
        return writer_name.parse(data) or WriterName("an unknown machine", 0, "")

    def check(self) -> None:
        """Raises DeltawireError, code "State", if the store has another writer by now."""
        owner = self._owner()
        if owner is None or owner.token != self._own.token:
            raise make_error(
                "State",
                f"{self._place} was taken over by {owner or 'somebody who has left'}: this writer "
                "publishes no more; a store has one writer at a time",
            )

    def release(self) -> None:
        """Lets the next writer in."""
        owner = self._owner()
        if owner is not None and owner.token == self._own.token:
            self._system.rm_file(self._path)
