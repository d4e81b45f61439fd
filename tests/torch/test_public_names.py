"""What `deltawire.torch` has for everybody, and what it says of names that it once had."""

import inspect

import deltawire
import deltawire.torch
import pytest

ONCE_MODULES = deltawire.torch._ONCE_MODULES


def test_what_docs_teach_is_there():
    for name in deltawire.torch.__all__:
        assert not inspect.ismodule(getattr(deltawire.torch, name)), name


@pytest.mark.parametrize("name", ONCE_MODULES)
def test_a_module_of_once_is_refused_and_the_new_place_is_named(name):
    with pytest.raises(AttributeError, match=f"{name} is no module any more") as refused:
        getattr(deltawire.torch, name)
    place = str(refused.value).split("use deltawire.torch.")[1]
    found = deltawire.torch
    for part in place.split("."):
        found = getattr(found, part)


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


def test_an_argument_that_is_gone_is_refused():
    with pytest.raises(TypeError, match="native_below"):
        deltawire.torch.register(None, "3lc", native_below=1)
