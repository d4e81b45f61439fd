"""Ranks that come and go train one linear model, with NumPy alone.

    export DELTAWIRE_TOKEN=$(openssl rand -hex 32)
    python elastic_session.py 127.0.0.1:29600 0 3 &   # rank 0 of 3
    python elastic_session.py 127.0.0.1:29600 1 3 &
    python elastic_session.py 127.0.0.1:29600 2 3 &

Kill one of them: the others go on. Start another one, which joins:

    python elastic_session.py 127.0.0.1:29600

The address is where rank 0 listens or, to join, where members do: "10.0.0.1:29600,10.0.0.2:4711".
"""

import os
import sys
import time

import deltawire
import numpy as np

FEATURES = 1000
SAMPLES = 250
STEPS = int(os.environ.get("STEPS", "200"))
LEARNING_RATE = 0.03


def main(address: str, place: dict[str, int]) -> None:
    """Trains. `place`: rank and world size; empty to join."""
    truth = np.random.default_rng(0).standard_normal(FEATURES).astype(np.float32)
    data = np.random.default_rng()
    weights = np.zeros(FEATURES, np.float32)
    with deltawire.Session(
        "3lc", **place, address=address, elastic=True, state=lambda: {"weights": weights}
    ) as session:
        if session.joined_state is not None:
            weights[:] = session.joined_state["weights"]
        while session.steps < STEPS:
            inputs = data.standard_normal((SAMPLES, FEATURES)).astype(np.float32)
            gradient = inputs.T @ (inputs @ weights - inputs @ truth) / len(inputs)
            session.all_reduce({"weights": gradient})  # returns when those who remain have the mean
            weights -= LEARNING_RATE * gradient
            time.sleep(float(os.environ.get("PAUSE", "0.1")))
    distance = np.linalg.norm(weights - truth) / np.linalg.norm(truth)
    print(
        f"rank {session.rank} of {session.world_size}: epoch {session.epoch}, {distance:.4f} from "
        f"the truth, weights {weights.tobytes().hex()[:16]}"
    )


if __name__ == "__main__":
    named = dict(zip(("rank", "world_size"), map(int, sys.argv[2:]), strict=False))
    main(sys.argv[1], named)
