import pytest
from cli_program import BINARY


@pytest.fixture(autouse=True, scope="session")
def binary() -> None:
    if not BINARY.is_file():
        pytest.fail(
            f"{BINARY} is not there: build it with 'cmake --build --preset release', or name "
            "another one in DELTAWIRE_BIN"
        )
