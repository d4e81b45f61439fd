"""The server's side. One line differs from the plain app: the wrapped strategy."""

import deltawire.flower
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from compressed_app import task

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Federated averaging."""
    settings = context.run_config
    nodes = settings["nodes"]
    strategy = FedAvg(min_train_nodes=nodes, min_evaluate_nodes=nodes, min_available_nodes=nodes)
    strategy = deltawire.flower.Compressed(strategy, down="3lc")
    arrays = ArrayRecord({name: Array(array) for name, array in task.start().items()})
    result = strategy.start(
        grid=grid, initial_arrays=arrays, num_rounds=settings["num-server-rounds"], timeout=120.0
    )
    for number, metrics in result.evaluate_metrics_clientapp.items():
        print(f"round {number}: accuracy {metrics['accuracy']:.3f}", flush=True)
    print(f"counts: {dict(strategy.grid.counts)}", flush=True)
