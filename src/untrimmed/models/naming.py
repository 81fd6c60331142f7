"""Names of models: METHOD+ATTACHMENT+..., for instance `gmmformer_v2+ral` or `ms_sl+matching+diversity`."""

from __future__ import annotations

from dataclasses import dataclass

from untrimmed.errors import ConfigError

SHORT_NAMES = {"diversity": "query_diversity", "matching": "optimal_matching"}


@dataclass(frozen=True)
class ModelName:
    """A method and the full names of its attachments, in the order in which they were given."""

    method: str
    attachments: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str | ModelName) -> ModelName:
        """Return the parsed name, with short names of attachments expanded.

        >>> str(ModelName.of("ms_sl+matching+diversity"))
        'ms_sl+optimal_matching+query_diversity'

        Raises: ConfigError for an empty or repeated part, and for a setting (KEY=VALUE).
        """
        if isinstance(name, ModelName):
            return name
        if "=" in name:
            key = name.partition("=")[0]
            end = max(key.rfind("+"), key.rfind(","))
            if end > 0:
                raise ConfigError(
                    f"model {name!r} contains a setting, expected METHOD+ATTACHMENT; write the setting separately: "
                    f"{name[:end]} {name[end + 1 :]}"
                )
            raise ConfigError(f"{name} is a setting, not a method; put METHOD first, for instance: ms_sl {name}")
        method, *attached = (part.strip() for part in name.split("+"))
        attached = [SHORT_NAMES.get(part, part) for part in attached]
        if not all((method, *attached)):
            raise ConfigError(
                f"model {name!r} has an empty part; write METHOD+ATTACHMENT, for instance gmmformer_v2+ral"
            )
        twice = [part for part in attached if attached.count(part) > 1]
        if twice:
            raise ConfigError(f"model {name!r} attaches {twice[0]!r} twice; name it once")
        return cls(method, tuple(attached))

    def __str__(self) -> str:
        return "+".join((self.method, *self.attachments))
