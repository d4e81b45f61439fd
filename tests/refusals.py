"""What a call that must be refused raises."""

import pytest


def raised(kind, action, *arguments, match=None, **named):
    """The error of this kind that action(*arguments, **named) raises; its text has `match`."""
    with pytest.raises(kind, match=match) as caught:
        action(*arguments, **named)
    return caught.value
