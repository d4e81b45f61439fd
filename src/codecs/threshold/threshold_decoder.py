"""threshold, decoded as its spec.md says: its parts are those of topk."""

import numpy as np
from spec_codec import Codec, number
from spec_sparse import PARAMETERS, decode

LIMITS = number(np.float32(1e-12), np.float32(1e12))

CODEC = Codec("threshold", 15, decode, scalars=1, parameters={"t": LIMITS, **PARAMETERS})
