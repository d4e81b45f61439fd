"""Two ranks train one linear model on data of their own, with NumPy alone.

    export DELTAWIRE_TOKEN=$(openssl rand -hex 32)
    python numpy_two_ranks.py 0 127.0.0.1:29600 &
    python numpy_two_ranks.py 1 127.0.0.1:29600

The first argument is the rank, the second where rank 0 listens, the same for both.
"""

import sys

import deltawire
import numpy as np

WORLD_SIZE = 2
FEATURES = 1000
SAMPLES = 250
STEPS = 200
LEARNING_RATE = 0.03


def main(rank: int, address: str) -> None:
    """Trains, and says how far the model is from the truth and what was sent for it."""
    truth = np.random.default_rng(0).standard_normal(FEATURES)
    data = np.random.default_rng(1 + rank)
    weights = np.zeros(FEATURES, np.float32)
    with deltawire.Session("3lc", rank=rank, world_size=WORLD_SIZE, address=address) as session:
        for _ in range(STEPS):
            inputs = data.standard_normal((SAMPLES, FEATURES)).astype(np.float32)
            errors = inputs @ weights - inputs @ truth.astype(np.float32)
            gradient = inputs.T @ errors / len(inputs)
            session.all_reduce({"weights": gradient})
            weights -= LEARNING_RATE * gradient
        totals = session.metrics()
    distance = np.linalg.norm(weights - truth) / np.linalg.norm(truth)
    print(
        f"rank {rank}: {distance:.4f} from the truth, {totals['total_ratio']:.1f} times less sent, "
        f"weights {weights.tobytes().hex()[:16]}"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
