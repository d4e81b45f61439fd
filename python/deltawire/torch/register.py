"""register(): one call for all kinds of models."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from deltawire import _core
from deltawire.policy import Policy
from deltawire.torch.auto.hook import AutoHook
from deltawire.torch.auto.registration import register_auto
from deltawire.torch.core import arguments, momentum_advice, wrappers
from deltawire.torch.core.loss_scale import Scaler
from deltawire.torch.core.settings import Settings
from deltawire.torch.ddp.hook import Hook
from deltawire.torch.ddp.registration import attach, check_model, register_ddp
from deltawire.torch.fsdp.hook import ShardedHook
from deltawire.torch.fsdp.registration import register_sharded


def register(
    ddp_model: DistributedDataParallel | torch.nn.Module,
    spec: Policy,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    min_elements: int = 256,
    timeout: float = 120.0,
    arrival_timeout: float | None = None,
    connect_timeout: float = 60.0,
    interface: str | None = None,
    port: int | str | None = None,
    token: str | bytes | None = None,
    link: _core.LinkShape | None = None,
    revert: str = "exact",
    threads: int | None = None,
    scaler: Scaler | None = None,
    nonfinite: str | None = None,
    tier: str | None = None,
    summary_every: int | None = None,
) -> Hook | ShardedHook | AutoHook:
    """Makes a DDP model exchange its gradients through deltawire; called once on every rank. Of a
    model that `fully_shard` has cut on a mesh of two dimensions, replicas by shards, it is the
    all-reduce between the replicas, of one that the FSDP-based `replicate` has made all of it.

    Args:
        ddp_model: the parameters that it exchanges are float32, bfloat16 or float16, as they come,
            on the CPU or on CUDA devices (see `Staging`). The set is fixed when DDP is constructed
            and may include frozen parameters. Gradients may be sparse, nn.Embedding(sparse=True),
            where the policy's codec takes pairs. Register before training, and before or after
            torch.compile. A sharded model: all of it, whose gradients are reduced as one of these
            dtypes on the CPU; every rank listens on two ports where it is cut.
        spec: codec, e.g. "3lc:s=1.75", or pattern and codec, "direct(3lc)", or a policy, which
            says what each tensor gets: rules, a dict, a list, Path("policy.toml") (see
            `deltawire.policy.spec_of`); equal on all ranks. "auto": the native all-reduce while it
            measures, and then what rank 0's plan says (docs/planner.md, "In training"); dense
            gradients on the CPU, without optimizer= and link=.
        optimizer: that steps the model (see `SignificanceSource`), for a codec that cuts what its
            step can't see ("gcomp", which cuts nothing without it); the same kind on all ranks.
        min_elements: parameters below this many elements travel uncompressed; equal on all ranks.
        timeout: seconds that a bucket may take, from when all have arrived, before the ranks give
            up and name the culprit; and that a rank may answer nothing.
        arrival_timeout: seconds that the ranks wait for one that answers them and has only not
            arrived at the step (it evaluates, or loads data); `timeout` where that is longer.
            Default: the timeout of the model's process group: of Gloo's 30 minutes, of NCCL's 10,
            unless it was made with another.
        connect_timeout: seconds that the ranks may take to connect to each other.
        interface: name or address of the network interface to listen on. Default: the address from
            which packets to MASTER_ADDR leave; loopback where MASTER_ADDR isn't set.
        port: to listen on, or a range of them for all ranks of a machine, "29600-29699". Default:
            what the environment says as DELTAWIRE_PORT, else any free one.
        token: a secret of all ranks, 16 bytes or more, never sent. Default: DELTAWIRE_TOKEN of the
            environment, else random bytes of rank 0, sent through the process group.
        link: a token bucket on this rank's traffic: the rate of a thin line, so that no packet is
            lost in its queue (docs/ceilings.md), or a lower one, to see how that would do.
        revert: of a step that fails, all gradients alike: "exact" (it never happened: compute its
            gradients again; costs a second buffer of the residuals' size) or "fold" (its gradients
            wait in the residuals, which `state_dict` has, and are sent later: go on with the next
            batch). "fold" is refused where it can't hold: `ring`, nonfinite="pass", sparse
            gradients and "auto".
        threads: that code this rank's messages, 1 to 64: several tensors at a time; "gcomp" also
            shares out a large one. Default: those that the process has for all who ask, as many as
            OMP_NUM_THREADS says, else its processors by LOCAL_WORLD_SIZE, at most 8.
        scaler: the model's GradScaler or a function that gives the loss scale: see `LossScale`.
        nonfinite: NaN or infinities end the exchange ("error", the default) or come out as NaN on
            every rank, for you to skip ("pass", the default with scaler=): see `LossScale`.
        tier: of "auto" alone: what its codecs may lose, "lossless", "near-lossless" (the default:
            bfloat16's rounding at most) or "lossy"; equal on all ranks.
        summary_every: steps between lines about them that rank 0 logs (logger "deltawire", INFO).

    Returns:
        The hook: metrics, state for checkpoints, the typed error when training fails, close(). A
        `ShardedHook` for a sharded model, an `AutoHook` for "auto".

    Raises:
        TypeError, DTypeError: no such model; parameters, optimizer or scaler that can't be used.
        InvalidArgumentError (a ValueError): world size 1, bad spec or setting, a model that has a
            communication hook already (a copy of a registered one may be registered), a parameter
            that was replaced since DDP was made, an optimizer for a codec that makes no use of it.
            Of a sharded model: a mesh of one dimension, meshes that differ, parameters that
            fully_shard has not cut, "auto".
        DeltawireError: alike on every rank: "Mismatch" (a rank with other settings), "Aborted" (a
            rank could not register), "Timeout" (ranks don't connect), "Unauthorized" (a rank with
            another token).

    The one collective on the model's process group waits under that group's timeout.

    Warns once, on rank 0, with `MomentumWarning`, when an optimizer with momentum first steps the
    model and the codec sends most of a gradient later ("topk", "sbc" and their kin), or has
    momentum itself ("dgc"): what to do is in the text.
    """
    settings = Settings(
        optimizer=optimizer,
        min_elements=min_elements,
        timeout=timeout,
        arrival_timeout=arrival_timeout,
        connect_timeout=connect_timeout,
        interface=interface,
        port=port,
        token=token,
        link=link,
        revert=revert,
        threads=threads,
        scaler=scaler,
        nonfinite=nonfinite,
        summary_every=summary_every,
        tier=tier,
    )
    if wrappers.has_fsdp2(ddp_model) and not isinstance(ddp_model, DistributedDataParallel):
        sharded = register_sharded(ddp_model, spec, settings)
        momentum_advice.watch(sharded.spec, ddp_model.parameters(), dist.get_rank())
        return sharded
    group = check_model(ddp_model)
    if isinstance(spec, str) and spec == arguments.AUTO:
        return attach(register_auto(ddp_model, settings), ddp_model)
    hook = attach(register_ddp(ddp_model, group, spec, settings), ddp_model)
    momentum_advice.watch(hook.spec, ddp_model.parameters(), hook.rank)
    return hook
