"""The manifest: which versions a store has, and what they are made of.

A version exists when the manifest names it, and the manifest is replaced as a whole.
"""

import hashlib
import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from deltawire import foreign_json
from deltawire.errors import corrupt, make_error

NAME = "manifest.json"
MAX_BYTES = 256 << 20
_FORMAT = "deltawire-weight-store"
# 2 is for those with abandoned versions, which readers of 1 would overlook.
_FORMAT_VERSION, _WITH_ABANDONED = 1, 2
_FILE_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,199}")
# The names that writers give.
_OWN_NAME = re.compile(r"\d{12,}-(full|from-\d{12,})-[0-9a-f]{8}\.safetensors")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_DIGEST = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True)
class StoredFile:
    """A file of the store: a patch, or a snapshot of all weights.

    Attributes:
        name: in the store's folder `files`.
        bytes: its size.
        sha256: of its bytes.
        base: the version that a patch is made from; None for a snapshot.
    """

    name: str
    bytes: int
    sha256: str
    base: int | None


@dataclass(frozen=True)
class Version:
    """A version of the model.

    Attributes:
        version: its number.
        digest: of the model's weights, 16 hexadecimal digits.
        files: each of them makes this version: a snapshot alone, a patch from its base.
        tied: further names of tensors, and the name under which each is stored.
    """

    version: int
    digest: str
    files: tuple[StoredFile, ...]
    tied: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Abandoned:
    """A version that its writer went back from: another one may have its number now.

    Attributes:
        version: its number.
        digest: of its weights.
    """

    version: int
    digest: str


@dataclass(frozen=True)
class Manifest:
    """What a store has.

    Attributes:
        generation: how many manifests were there before it.
        published: how many versions have ever been published.
        versions: in ascending order.
        retired: names of files that no version has any more, and the last generation that named
            them; they are deleted when readers of that manifest had time to finish.
        abandoned: versions that readers may still have, with numbers from the first version's on.
    """

    generation: int = 0
    published: int = 0
    versions: tuple[Version, ...] = ()
    retired: Mapping[str, int] = field(default_factory=dict)
    abandoned: tuple[Abandoned, ...] = ()

    @property
    def latest(self) -> int | None:
        """The newest version."""
        return self.versions[-1].version if self.versions else None

    def find(self, version: int) -> Version | None:
        """A version by its number."""
        return next((each for each in self.versions if each.version == version), None)

    def files(self) -> set[str]:
        """Names of all files that somebody may read: of versions, and retired ones."""
        named = {file.name for version in self.versions for file in version.files}
        return named | self.retired.keys()

    def with_version(self, version: Version) -> "Manifest":
        """The manifest that also has a new version."""
        return replace(self, published=self.published + 1, versions=(*self.versions, version))

    def back_at(self, version: int) -> "Manifest":
        """The manifest without the versions above that number, which are abandoned."""
        dropped = [each for each in self.versions if each.version > version]
        if not dropped:
            return self
        left = [Abandoned(each.version, each.digest) for each in dropped]
        every = tuple(dict.fromkeys((*self.abandoned, *left)))
        kept = self.versions[: len(self.versions) - len(dropped)]
        return replace(self._only(kept), abandoned=every)

    def without_old(self, keep: int) -> "Manifest":
        """The manifest of the last `keep` versions, and of those that they are made from."""
        oldest = max(0, len(self.versions) - keep)
        whole = [any(f.base is None for f in each.files) for each in self.versions[: oldest + 1]]
        snapshots = [i for i, is_whole in enumerate(whole) if is_whole]
        kept = self.versions[snapshots[-1] :] if snapshots else self.versions
        # Of a version before the first, whatever its weights are, a reader begins with a snapshot.
        left = tuple(each for each in self.abandoned if each.version >= kept[0].version)
        return replace(self._only(kept), abandoned=left)

    def _only(self, kept: tuple[Version, ...]) -> "Manifest":
        """With these versions alone; the others' files are retired."""
        bases = {each.version for each in kept}
        trimmed = tuple(
            replace(each, files=tuple(f for f in each.files if f.base is None or f.base in bases))
            for each in kept
        )
        dropped = self.files() - self.retired.keys()
        dropped -= {file.name for version in trimmed for file in version.files}
        retired = dict(self.retired) | dict.fromkeys(dropped, self.generation)
        return replace(self, versions=trimmed, retired=retired)

    def without_deletable(self, grace: int) -> "Manifest":
        """The next manifest, without retired files that `grace` manifests have not named."""
        held = {name: last for name, last in self.retired.items() if self.generation - last < grace}
        return replace(self, generation=self.generation + 1, retired=held)


def new_name(version: int, base: int | None) -> str:
    """A name for a file of a version, that no other file has."""
    kind = "full" if base is None else f"from-{base:012}"
    return f"{version:012}-{kind}-{secrets.token_hex(4)}.safetensors"


def is_own_name(name: str) -> bool:
    """Whether a file's name is one that `new_name` could give: others are not the store's."""
    return _OWN_NAME.fullmatch(name) is not None


def to_bytes(manifest: Manifest) -> bytes:
    """The manifest as JSON, with a checksum of itself."""
    fields = {"format": _FORMAT, "format_version": _WITH_ABANDONED, **asdict(manifest)}
    if not manifest.abandoned:
        fields["format_version"] = _FORMAT_VERSION
        del fields["abandoned"]
    text = _canonical(fields)
    return _canonical({"sha256": hashlib.sha256(text).hexdigest(), "store": fields})


def _canonical(fields: object) -> bytes:
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


def parse(where: str, data: bytes) -> Manifest:
    """The manifest of bytes that `to_bytes` made.

    Raises:
        DeltawireError: code "Corrupt" or "UnsupportedVersion".
    """
    try:
        whole = foreign_json.parse(data)
        fields = whole["store"]
        if whole["sha256"] != hashlib.sha256(_canonical(fields)).hexdigest():
            raise ValueError("its checksum is wrong")
        if fields["format"] != _FORMAT:
            raise ValueError("it is of another format")
        newer = fields["format_version"] not in (_FORMAT_VERSION, _WITH_ABANDONED)
        manifest = None if newer else _from_fields(fields)
    except foreign_json.UNFIT as error:
        raise corrupt(f"{where} is no manifest: {error}") from None
    if manifest is None:
        raise make_error("UnsupportedVersion", f"{where} has a newer format: update deltawire")
    return manifest


def _from_fields(fields: dict) -> Manifest:
    versions: list[Version] = []
    known: set[int] = set()
    for each in fields["versions"]:
        files = tuple(StoredFile(**file) for file in each["files"])
        number = each["version"]
        _require(type(number) is int and _DIGEST.fullmatch(each["digest"]), "a version")
        _require(not versions or number > versions[-1].version, "the order of versions")
        for file in files:
            _require(_FILE_NAME.fullmatch(file.name) and _SHA256.fullmatch(file.sha256), "a file")
            _require(type(file.bytes) is int and 0 <= file.bytes < 2**63, "a file's size")
            _require(file.base is None or file.base in known, "a patch's base")
        tied = (*each["tied"], *each["tied"].values())
        _require(all(isinstance(name, str) for name in tied), "tied tensors")
        versions.append(Version(number, each["digest"], files, dict(each["tied"])))
        known.add(number)
    retired = fields["retired"]
    _require(all(_FILE_NAME.fullmatch(name) for name in retired), "a retired file")
    counts = (fields["generation"], fields["published"], *retired.values())
    _require(all(type(count) is int and count >= 0 for count in counts), "a count")
    _require(fields["published"] >= len(versions), "how many versions were published")
    abandoned = ()
    if fields["format_version"] == _WITH_ABANDONED:
        abandoned = tuple(Abandoned(**each) for each in fields["abandoned"])
    for each in abandoned:
        _require(type(each.version) is int and _DIGEST.fullmatch(each.digest), "what was abandoned")
    return Manifest(
        fields["generation"], fields["published"], tuple(versions), dict(retired), abandoned
    )


def _require(condition: object, what: str) -> None:
    if not condition:
        raise ValueError(f"{what} is wrong")
