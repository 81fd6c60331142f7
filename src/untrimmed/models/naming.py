"""Names of compositions: METHOD+ATTACHMENT+..., for instance `gmmformer_v2+ral` or `ms_sl+matching+diversity`."""

from untrimmed.errors import ConfigError

SHORT_NAMES = {"diversity": "query_diversity", "matching": "optimal_matching"}


def parse_name(name: str) -> tuple[str, tuple[str, ...]]:
    """The method and the full names of what is attached to it, in the given order.

    >>> parse_name("ms_sl+matching+diversity")
    ('ms_sl', ('optimal_matching', 'query_diversity'))

    Raises: ConfigError for an empty part or one that is named twice.
    """
    method, *attached = (part.strip() for part in name.split("+"))
    attached = [SHORT_NAMES.get(part, part) for part in attached]
    if not all((method, *attached)):
        raise ConfigError(f"model {name!r} has an empty part; write METHOD+ATTACHMENT, for instance gmmformer_v2+ral")
    twice = [part for part in attached if attached.count(part) > 1]
    if twice:
        raise ConfigError(f"model {name!r} attaches {twice[0]!r} twice; name it once")
    return method, tuple(attached)


def full_name(name: str) -> str:
    """The name with all short names written out.

    >>> full_name("ms_sl+matching")
    'ms_sl+optimal_matching'
    """
    method, attached = parse_name(name)
    return "+".join((method, *attached))
