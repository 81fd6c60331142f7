"""Checks of errors: class, one line, and the names and values in the message. The wording is free."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


def require_named(message: str, *words: str) -> None:
    """Require one line that contains these words, in any order."""
    assert message.isprintable(), message
    whole = r"(?<!\w)(?<!\d\.){}(?!\w|\.0*[1-9])"  # "2" matches "2.0", but not "25" or "2.5"
    missing = [word for word in words if not re.search(whole.format(re.escape(word)), message)]
    assert missing == [], message


@contextmanager
def refused(error: type[BaseException], *words: str) -> Iterator[pytest.ExceptionInfo[BaseException]]:
    """Require that the block raises this error, with a one-line message that contains these words."""
    with pytest.raises(error) as caught:
        yield caught
    require_named(str(caught.value), *words)
