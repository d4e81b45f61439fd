"""register(): one call for all kinds of models."""

from collections.abc import Sequence
from typing import Literal, TypeVar

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from deltawire import _core
from deltawire.arguments import Carrier, Encryption, Nonfinite, Revert, Tier
from deltawire.torch.auto.hook import AutoHook
from deltawire.torch.auto.registration import register_auto
from deltawire.torch.core import arguments, wrappers
from deltawire.torch.core.device.choice import Twins, check_not_for_auto
from deltawire.torch.core.loss_scale import Scaler
from deltawire.torch.core.optimizer_rules import momentum_advice, momentum_choice
from deltawire.torch.core.replica_check import EVERY
from deltawire.torch.core.settings import Settings
from deltawire.torch.core.weak import weakly
from deltawire.torch.ddp.hook import Hook
from deltawire.torch.ddp.registration import attach, check_model, register_ddp
from deltawire.torch.fsdp.hook import ShardedHook
from deltawire.torch.fsdp.registration import register_sharded

_Registered = TypeVar("_Registered", Hook, ShardedHook)


def register(
    ddp_model: DistributedDataParallel | torch.nn.Module,
    spec: str,
    *,
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
    min_elements: int = 256,
    timeout: float = 120.0,
    arrival_timeout: float | None = None,
    connect_timeout: float = 60.0,
    interface: str | None = None,
    port: int | str | None = None,
    token: str | bytes | None = None,
    encryption: Encryption | None = None,
    link: _core.LinkShape | None = None,
    carrier: Carrier = "tcp",
    revert: Revert = "exact",
    threads: int | None = None,
    scaler: Scaler | None = None,
    nonfinite: Nonfinite | None = None,
    tier: Tier | None = None,
    summary_every: int | None = None,
    twins: Twins = False,
    momentum: Literal["rate", "optimizer"] = momentum_choice.AS_RATE,
    compare_every: int | None = EVERY,
) -> Hook | ShardedHook | AutoHook:
    """Makes a DDP model exchange its gradients through deltawire. Call it once on every rank.

    A single rank takes part like any other: its gradients are coded and decoded, nothing is sent.

    For a model that `fully_shard` has sharded on a two-dimensional mesh (replicas by shards) it
    takes over the all-reduce between replicas; for one of the FSDP-based `replicate`, all of it.

    Args:
        ddp_model: a DistributedDataParallel model whose gradients are float32, bfloat16 or float16,
            on the CPU or on CUDA devices (see `Staging`). The set of exchanged parameters is fixed
            when DDP is constructed and may include frozen parameters. Gradients may be sparse
            (nn.Embedding(sparse=True)) if their codec takes pairs. Register before training,
            before or after torch.compile. For a sharded model: its root, with gradients that are
            reduced in one of these dtypes; every rank then listens on two ports.
        spec: a codec, e.g. "3lc:s=1.75", or pattern and codec, "direct(3lc)", or rules that choose
            a codec for each tensor, "direct(conv*: 3lc, rest fp32)"; equal on all ranks. In
            "hierarchical:group=host" the number of ranks on this host takes the place of "host"
            (torchrun's LOCAL_WORLD_SIZE). "auto" starts with the native
            all-reduce, measures, and follows rank 0's plan (docs/guides/planner.md, "In training");
            for dense gradients on one device, without link= and twins=.
        optimizer: the model's optimizer, the same kind on all ranks, as it is or as Accelerate or
            Lightning wrap it, or a list of those that step it together (Muon and AdamW): for a
            codec that its own way to step does not suit ("topk", "sbc", "signsgd" and the like;
            "3lc" under Adam and AdamW; see `momentum`), and for one that cuts what the optimizer's
            step can't see ("gcomp", which cuts nothing without it; see `SignificanceSource`).
            Without it "3lc" takes the Adam or AdamW that first steps the model, and rank 0 logs so.
        min_elements: parameters below this many elements travel uncompressed; equal on all ranks.
        timeout: seconds for a bucket, from when all ranks have arrived, before the ranks give up
            and name the culprit; also how long a rank may be silent.
        arrival_timeout: seconds that the ranks wait for one that is alive but has not arrived at
            the step (it evaluates, or loads data). At least `timeout`. Default: the timeout of the
            model's process group, by default 30 minutes with Gloo and 10 with NCCL.
        connect_timeout: seconds for the ranks to connect to each other.
        interface: name or address of the network interface to listen on. Default: the one that
            sends packets to MASTER_ADDR; loopback if MASTER_ADDR isn't set.
        port: the port to listen on, or a range for all ranks of a machine, "29600-29699". Default:
            the environment's DELTAWIRE_PORT, else any free port.
        token: a secret of all ranks, 16 bytes or more, which is never sent. Default: the
            environment's DELTAWIRE_TOKEN, else random bytes from rank 0, sent through the process
            group.
        encryption: of the connections between ranks, by TLS 1.3 with a key from the token: "auto"
            (those that leave the machine), "required" or "off"; equal on all ranks. Default: the
            environment's DELTAWIRE_ENCRYPTION, else "auto". "required" needs a token of the ranks'
            own and refuses "auto", whose native all-reduce is in the clear.
        link: limits this rank's traffic by a token bucket: to the rate of a thin line, so that no
            packets are lost in its queue (docs/results/speed/network.md), or to a lower one as
            an experiment.
        carrier: who moves messages: "tcp", connections of deltawire's own, or "group", the model's
            process group, whatever its backend, for a network that these can't use; equal on all
            ranks. What ranks say of each other stays on TCP, and with it every deadline; the group
            encrypts nothing (docs/guides/pytorch.md). Not for "auto".
        revert: what happens to the gradients of a failed step. "exact": the step never happened;
            compute its gradients again (costs a second buffer of the residuals' size). "fold": its
            gradients are kept in the residuals, which `state_dict` includes, and sent later;
            continue with the next batch. "fold" is refused with `ring`, `hierarchical`,
            nonfinite="pass", sparse gradients and "auto", which can't keep them.
        threads: threads that encode and decode this rank's messages, 1 to 64: several tensors at a
            time; "gcomp" also splits a large one. Default: the process's shared threads:
            OMP_NUM_THREADS, else its processors divided by LOCAL_WORLD_SIZE, at most 8.
        scaler: the model's GradScaler, or a function that returns the loss scale: see `LossScale`.
        nonfinite: what NaN or infinities do. "error" (the default): end the exchange. "pass" (the
            default with scaler=): come out as NaN on every rank, for you to skip. See `LossScale`.
        tier: only for "auto": what its codecs may lose: "lossless", "near-lossless" (the default:
            at most bfloat16's rounding) or "lossy"; equal on all ranks.
        summary_every: steps between the summaries that rank 0 logs (logger "deltawire", INFO).
        twins: True: gradients on a GPU are encoded and decoded there, by the codecs' twins; an
            error if that is impossible. False (the default): they are copied to the CPU and coded
            there, which was slower on an H100 (docs/reference/gpu.md). Or a function that makes a
            twin, given a codec's canonical spec. Not for "auto".
        momentum: what becomes of the optimizer's momentum for tensors whose gradients arrive late.
            "rate" (the default): with optimizer=SGD they are stepped without momentum and at a
            higher learning rate (see `MomentumAsRate`), with Adam and AdamW without their first
            moment (see `AdamWithoutMomentum`), as one line of the log says. "optimizer": it is left
            alone, without a warning, and such a run may diverge.
        compare_every: steps after which the ranks compare a digest of the parameters, too, in the
            vote that ends a step (see `ReplicaCheck`); None: never. Equal on all ranks. "auto"
            compares them while it compresses.

    Returns:
        The hook: metrics, state for checkpoints, the typed error when training fails, close(). A
        `ShardedHook` for a sharded model, an `AutoHook` for "auto".

    Raises:
        TypeError, DTypeError: a model, parameters, optimizer or scaler that can't be used.
        InvalidArgumentError (a ValueError): a bad spec or setting, a model that has a
            communication hook already (a copy of a registered one may be registered), a parameter
            that was replaced since DDP was made, an optimizer for a codec that doesn't use it. For
            a sharded model: a one-dimensional mesh, different meshes, parameters that fully_shard
            has not sharded, "auto".
        DeltawireError: alike on every rank: "Mismatch" (a rank with other settings), "Aborted" (a
            rank could not register), "Timeout" (ranks don't connect), "Unauthorized" (a rank with
            another token).

    The one collective on the model's process group runs under that group's timeout.

    A `MomentumWarning` is issued once, on rank 0, when an optimizer first steps the model that does
    not go with the codec, and says what to write.
    """
    settings = Settings(
        arguments.Connection(interface, port, token, encryption, link, connect_timeout, carrier),
        arguments.Coding(min_elements, threads, revert),
        optimizer=optimizer,
        timeout=timeout,
        arrival_timeout=arrival_timeout,
        scaler=scaler,
        nonfinite=nonfinite,
        summary_every=summary_every,
        tier=tier,
        twins=twins,
        momentum=momentum,
        compare_every=compare_every,
    )
    if wrappers.has_fsdp2(ddp_model) and not isinstance(ddp_model, DistributedDataParallel):
        sharded = register_sharded(ddp_model, spec, settings)
        return _advised(sharded, ddp_model, dist.get_rank(), momentum)
    group = check_model(ddp_model)
    if arguments.is_auto(spec):
        check_not_for_auto(twins)
        return attach(register_auto(ddp_model, spec, settings), ddp_model)
    hook = attach(register_ddp(ddp_model, group, spec, settings), ddp_model)
    return _advised(hook, ddp_model, hook.rank, momentum)


def _advised(hook: _Registered, model: torch.nn.Module, rank: int, momentum: str) -> _Registered:
    """Warns where the optimizer's momentum does not go with the codec, unless it is to be kept."""
    rules, spec = hook.optimizer_rules, hook.parsed_spec
    stays = momentum == momentum_choice.IN_OPTIMIZER and momentum_choice.may_have_rule(spec)
    if rules.seek or rank == 0:
        take = weakly(rules.take, momentum_advice.Taken())
        is_provided = (lambda _: True) if stays else weakly(rules.step_some_of, True)
        momentum_advice.watch(spec, model.parameters(), rank, take, is_provided)
    hook.advise(momentum_advice.of_diverging(spec, rules.held))
    return hook
