"""Where the repository and the `deltawire` program are."""

import os
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
DELTAWIRE = Path(os.environ.get("DELTAWIRE_BIN", REPOSITORY / "build" / "release" / "deltawire"))
