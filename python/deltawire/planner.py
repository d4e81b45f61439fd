"""The planner: how long a training step would take with each codec on a link, and whether any is
worth it. It computes from measured figures; `deltawire plan` and
`deltawire.torch.register(model, "auto")` measure them (docs/guides/planner.md)::

    workload = planner.ddp_workload([("weight", 1_000_000)], compute_seconds=0.03)
    figures = planner.CodecFigures("bf16", "direct", "near-lossless", 16.1, (2e-6, 4e-10),
                                   (2e-6, 5e-10))
    plan = planner.make_plan(workload, 4, planner.Link(12.5e6, latency_seconds=1e-3), [figures])
    print(plan.reason)

Thread rule: all functions are pure; any thread may call any of them.
"""

from deltawire._core import (
    CodecFigures,
    Link,
    Machine,
    Mix,
    Plan,
    PlanRow,
    Prediction,
    Workload,
    ddp_workload,
    make_mix,
    make_plan,
    tier_of,
)

__all__ = [
    "CodecFigures",
    "Link",
    "Machine",
    "Mix",
    "Plan",
    "PlanRow",
    "Prediction",
    "Workload",
    "ddp_workload",
    "make_mix",
    "make_plan",
    "tier_of",
]
