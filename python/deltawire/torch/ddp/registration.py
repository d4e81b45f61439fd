"""What `register` does for a DistributedDataParallel model."""

import logging

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from deltawire.errors import invalid
from deltawire.session.terms import Terms
from deltawire.torch.core import arguments, bootstrap, wrappers
from deltawire.torch.core.settings import Settings
from deltawire.torch.ddp.hook import Hook
from deltawire.torch.ddp.parameters import DDPParameters
from deltawire.torch.ddp.sparse_gradient import check_sparse
from deltawire.torch.participant import DetachedSession, Participant

logger = logging.getLogger("deltawire")


def register_ddp(
    ddp_model: DistributedDataParallel, group: dist.ProcessGroup, spec: str, given: Settings
) -> Hook:
    """Meets the other ranks and makes the hook, which `attach` gives to DDP."""
    with bootstrap.Meeting(group, next(ddp_model.parameters()).device) as meeting:
        given.check_no_tier()
        parameters = DDPParameters(ddp_model)
        if parameters.sparse:
            given.check_no_fold(f"the sparse gradients of '{parameters.sparse[0][0]}'")
        made = given.exchange(spec, group)
        check_sparse(made.spec, made.options, parameters.sparse)
        names = parameters.names
        arguments.warn_of_rules_without_tensor(made.spec, names.values(), meeting.place[0])
        uses = made.optimizer_uses(names, parameters.tensors, meeting.place[1])
        made = made.coded_for(
            parameters.devices,
            {each.dtype for each in parameters.all},
            meeting.place[0],
            has_sparse=bool(parameters.sparse),
        )
        terms = made.terms() | {"optimizer": uses.name}
        meeting.agree_on(Terms("register", parameters.lines(), **terms))
        meeting.listen(given.connection)
    made.choice.log(meeting.place[0])
    if meeting.place[0] == 0:
        values = parameters.gradient_bytes
        what = f"{made.spec} exchanges {len(names)} tensors, {values:,} bytes a step"
        logger.info("%s; %s", what, uses.rules.text())
    return Hook(
        made.connect(meeting),
        parameters,
        meeting.place,
        made.step_rules(uses, group),
        notices_unexchanged=True,
        group=group,
        summary_every=given.summary_every,
        encryption=meeting.encryption,
        carrier=meeting.carrier,
    )


def attach(hook: Participant, ddp_model: DistributedDataParallel) -> Participant:
    """Registers the hook with DDP; closes it if DDP refuses."""
    try:
        ddp_model.register_comm_hook(None, hook.deltawire_hook)
    except Exception as cause:
        hook.close()
        raise invalid(f"DDP refuses the hook: {cause}") from cause
    ddp_model.register_forward_hook(hook.after_forward)
    ddp_model.register_forward_pre_hook(hook.before_forward)
    return hook


def check_model(ddp_model: DistributedDataParallel) -> dist.ProcessGroup:
    """Checks what fails alike on every rank, without communication; returns the model's group."""
    wrappers.check_ddp(ddp_model)
    if ddp_model.mixed_precision is not None:
        raise invalid(
            "DDP's mixed_precision= has a communication hook of its own, and DDP takes only one; "
            "leave mixed_precision out (autocast is fine)"
        )
    forget_copied_hooks(ddp_model)
    if ddp_model._comm_hooks:
        raise invalid(
            "the model has a communication hook already, and DDP takes only one; wrap the "
            "module in a new DistributedDataParallel"
        )
    if ddp_model._use_python_reducer:
        raise invalid(
            "torch.compile's python_reducer gives hooks no buckets; set "
            'torch._dynamo.config.optimize_ddp = "ddp_optimizer" before DistributedDataParallel is '
            "made"
        )
    return ddp_model.process_group


def forget_copied_hooks(ddp_model: DistributedDataParallel) -> None:
    """Removes what copied hooks left in a copied model, so that it can be registered. The copy's
    reducer has no hook."""
    ddp_model._comm_hooks = [entry for entry in ddp_model._comm_hooks if not _is_copied(entry[0])]
    for hooks in (ddp_model._forward_hooks, ddp_model._forward_pre_hooks):
        for key in [key for key, function in hooks.items() if _is_copied(function)]:
            del hooks[key]


def _is_copied(function) -> bool:
    owner = getattr(function, "__self__", None)
    return isinstance(getattr(owner, "_session", None), DetachedSession)
