"""What `deltawire.torch` has for everybody."""

import inspect

import deltawire
import deltawire.torch
import pytest


def test_what_docs_teach_is_there():
    for name in deltawire.torch.__all__:
        assert not inspect.ismodule(getattr(deltawire.torch, name)), name


def test_another_name_is_unknown():
    assert not hasattr(deltawire.torch, "registrations")
    with pytest.raises(AttributeError, match="has no attribute 'registrations'"):
        _ = deltawire.torch.registrations


def test_a_module_that_is_not_imported_says_how():
    with pytest.raises(AttributeError, match=r"no attribute 'torch'.*: import deltawire\.torch$"):
        deltawire.__getattr__("torch")  # as if it weren't
    for unknown in ("torches", "torch.ddp"):
        with pytest.raises(AttributeError, match=f"no attribute '{unknown}'$"):
            getattr(deltawire, unknown)
