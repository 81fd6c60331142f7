"""What a refusal has to be: of its class, in one line, with what is wrong named; how it is worded is free."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


def require_named(message: str, *words: str) -> None:
    """Require one line that holds these words, in any order."""
    assert message.isprintable(), message
    whole = r"(?<!\w)(?<!\d\.){}(?!\w|\.0*[1-9])"  # "2" is in "2.0", and neither in "25" nor in "2.5"
    missing = [word for word in words if not re.search(whole.format(re.escape(word)), message)]
    assert missing == [], message


@contextmanager
def refused(error: type[BaseException], *words: str) -> Iterator[pytest.ExceptionInfo[BaseException]]:
    """Require that the block raises this error, with a message of one line that names these words."""
    with pytest.raises(error) as caught:
        yield caught
    require_named(str(caught.value), *words)
