"""A store's files are those of `deltawire patch`: what one writes the other reads."""

import cli_program
from deltawire import weight_store

from tests.weight_store.store_models import files_of, small_model, step


def test_the_program_applies_a_stores_patches(tmp_path) -> None:
    """Byte for byte the snapshot of the version, and it would have made the same patch."""
    store = weight_store.Store(tmp_path, merged=(2,), snapshot_every=1)
    model = small_model()
    for number in range(4):
        store.publish(model, number)
        step(model, number)
    files = files_of(store, tmp_path)
    patches = {ends: path for ends, path in files.items() if ends[0] is not None}
    assert set(patches) == {(0, 1), (1, 2), (0, 2), (2, 3)}
    for (base, number), path in patches.items():
        old, new = files[None, base], files[None, number]
        cli_program.must_run("patch", "apply", old, path, tmp_path / f"{base}-{number}")
        assert (tmp_path / f"{base}-{number}").read_bytes() == new.read_bytes()
        cli_program.must_run("patch", "make", old, new, tmp_path / f"{base}-{number}.patch")
        # The program's patches have a digest of the new file, which a store's manifest has.
        digest = len(',"file":"0123456789abcdef"')
        assert (tmp_path / f"{base}-{number}.patch").stat().st_size <= path.stat().st_size + digest
