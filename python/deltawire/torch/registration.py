"""register(): checks, meets the other ranks, and gives the DDP model its hook."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from deltawire import _core
from deltawire.errors import InvalidArgumentError, make_error
from deltawire.policy import Policy, spec_of
from deltawire.terms import Terms, exchange_settings
from deltawire.torch import arguments, bootstrap, momentum_advice, native_buckets, wrappers
from deltawire.torch.auto_hook import AutoHook
from deltawire.torch.auto_registration import register_auto
from deltawire.torch.copied import forget_copied_hooks
from deltawire.torch.exchanged import Exchanged
from deltawire.torch.fsdp_hook import ShardedHook
from deltawire.torch.fsdp_registration import register_sharded
from deltawire.torch.hook import Hook
from deltawire.torch.loss_scale import LossScale, Scaler
from deltawire.torch.native_registration import natives_of
from deltawire.torch.settings import Settings
from deltawire.torch.significance import source_for
from deltawire.torch.sparse_gradient import check_sparse


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
    native_below: int | None = None,
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
            measures, and then what rank 0's plan says (docs/guides/planner.md, "In training");
            dense gradients on the CPU, without optimizer= and link=.
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
            lost in its queue (docs/results/speed.md), or a lower one, to see how that would do.
        revert: of a step that fails, all gradients alike: "exact" (it never happened: compute its
            gradients again; costs a second buffer of the residuals' size) or "fold" (its gradients
            wait in the residuals, which `state_dict` has, and are sent later: go on with the next
            batch). "fold" is refused where it can't hold: `ring`, nonfinite="pass", sparse
            gradients, native_below= and "auto".
        threads: that code this rank's messages, 1 to 64: several tensors at a time; "gcomp" also
            shares out a large one. Default: those that the process has for all who ask, as many as
            OMP_NUM_THREADS says, else its processors by LOCAL_WORLD_SIZE, at most 8.
        scaler: the model's GradScaler or a function that gives the loss scale: see `LossScale`.
        nonfinite: NaN or infinities end the exchange ("error", the default) or come out as NaN on
            every rank, for you to skip ("pass", the default with scaler=): see `LossScale`.
        tier: of "auto" alone: what its codecs may lose, "lossless", "near-lossless" (the default:
            bfloat16's rounding at most) or "lossy"; equal on all ranks.
        native_below: buckets whose gradients take fewer bytes than this go through the process
            group's own all-reduce, exact, in the same step as the coded ones
            (docs/guides/planner.md, "Native buckets"); so do all of the first step where the codec
            keeps residuals. A model on the CPU, dense gradients, nothing before the codec, no
            link=. Default: none. Equal on all ranks.
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
        native_below=native_below,
    )
    if wrappers.has_fsdp2(ddp_model) and not isinstance(ddp_model, DistributedDataParallel):
        sharded = register_sharded(ddp_model, spec, settings)
        momentum_advice.watch(sharded.spec, ddp_model.parameters(), dist.get_rank())
        return sharded
    group = _check_model(ddp_model)
    if isinstance(spec, str) and spec == arguments.AUTO:
        return _attach(register_auto(ddp_model, settings), ddp_model)
    hook = _attach(_connected(ddp_model, group, spec, settings), ddp_model)
    momentum_advice.watch(hook.spec, ddp_model.parameters(), hook.rank)
    return hook


def _connected(
    ddp_model: DistributedDataParallel, group: dist.ProcessGroup, spec: Policy, given: Settings
) -> Hook:
    """The hook, once the ranks have met."""
    with bootstrap.Meeting(group, next(ddp_model.parameters()).device) as meeting:
        given.check_no_tier()
        arguments.check_summary_every(given.summary_every)
        spec = spec_of(spec)
        exchanged = Exchanged(ddp_model)
        if exchanged.sparse:
            given.check_no_fold(f"the sparse gradients of '{exchanged.sparse[0][0]}'")
        timeout_ms = arguments.timeout_in_ms(given.timeout)
        scale = LossScale(given.scaler, spec, given.nonfinite)
        arrival_ms = arguments.arrival_timeout_in_ms(given.arrival_timeout, group)
        timeouts = 1e-3 * timeout_ms, 1e-3 * arrival_ms
        natives = natives_of(ddp_model, spec, given, timeouts, scale.nonfinite)
        least = given.min_elements
        if natives is not None:
            least = max(least, native_buckets.LEAST_ELEMENTS)
        options = arguments.reducer_options(least, given.revert, given.threads, scale.nonfinite)
        arguments.check_reducer(spec, options)
        check_sparse(spec, options, exchanged.sparse)
        arguments.warn_of_rules_without_tensor(spec, exchanged.names.values(), meeting.place[0])
        source = source_for(given.optimizer, spec, exchanged.names)
        arguments.check_link(given.link)
        meeting.agree_on(
            Terms(
                "register",
                exchanged.lines(),
                **exchange_settings(spec, given.min_elements, given.revert, scale.nonfinite),
                scaler=scale.setting,
                optimizer=source.name if source else "none",
                native_below=given.native_below,
            )
        )
        meeting.listen(given.interface, given.port, given.connect_timeout, given.token)
    session = meeting.connect(spec, options, given.link, arrival_ms)
    of_participant = {"group": group, "summary_every": given.summary_every, "natives": natives}
    return Hook(session, exchanged, meeting.place, timeout_ms, source, scale, **of_participant)


def _attach(hook: Hook | AutoHook, ddp_model: DistributedDataParallel) -> Hook | AutoHook:
    """Gives the hook to DDP; closes it if DDP won't have it."""
    try:
        ddp_model.register_comm_hook(None, hook.deltawire_hook)
    except Exception as cause:
        hook.close()
        raise make_error("InvalidArgument", f"DDP refuses the hook: {cause}") from cause
    ddp_model.register_forward_hook(hook.after_forward)
    ddp_model.register_forward_pre_hook(hook.before_forward)
    return hook


def _check_model(ddp_model: DistributedDataParallel) -> dist.ProcessGroup:
    """The model's group, after what every rank finds alike, without a word to the others."""
    wrappers.check_ddp(ddp_model)
    if dist.get_world_size(ddp_model.process_group) < 2:
        raise InvalidArgumentError(
            "world size is 1: there is nobody to exchange gradients with; start at least 2 ranks, "
            "or leave register out",
            "InvalidArgument",
        )
    if ddp_model.mixed_precision is not None:
        raise InvalidArgumentError(
            "DDP's mixed_precision= has a communication hook of its own, and DDP takes only one; "
            "leave mixed_precision out (autocast is fine)",
            "InvalidArgument",
        )
    forget_copied_hooks(ddp_model)
    if ddp_model._comm_hooks:
        raise InvalidArgumentError(
            "the model has a communication hook already, and DDP takes only one; wrap the "
            "module in a new DistributedDataParallel",
            "InvalidArgument",
        )
    if ddp_model._use_python_reducer:
        raise InvalidArgumentError(
            "torch.compile's python_reducer gives hooks no buckets; set "
            'torch._dynamo.config.optimize_ddp = "ddp_optimizer" before DistributedDataParallel is '
            "made",
            "InvalidArgument",
        )
    return ddp_model.process_group
