"""A method with attachments as one class, made when it is asked for: `gmmformer_v2+ral`."""

import dataclasses
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

from jaxtyping import Bool, Float
from torch import Tensor, nn

from untrimmed.batches import EncodedQueries, EncodedVideos, QueryBatch, TrainingBatch, VideoBatch
from untrimmed.errors import CheckpointError, ConfigError, UnknownNameError
from untrimmed.losses.draws import Draws
from untrimmed.models.base import LossSettings, ModelConfig, RetrievalModel, attached_losses
from untrimmed.models.extension import EXTENSIONS, Extension
from untrimmed.models.released import Names
from untrimmed.nn.init import initialise
from untrimmed.scores.score import Scores


class Composed(RetrievalModel):
    """Stands before a method in the order of classes and adds what the extensions add.

    The method itself knows of its extensions only which branches they provide and whether they read frames.
    """

    extension_types: ClassVar[Mapping[str, type[Extension]]]
    loss_names: ClassVar[tuple[str, ...]]  # attached losses that the name asks for
    method: ClassVar[str]  # without attachments

    def __init__(self, config: ModelConfig):
        self._require_whole(config)
        super().__init__(config)
        self.extensions = nn.ModuleDict(
            {name: cls(getattr(config, name), self) for name, cls in self.extension_types.items()}
        )
        initialise(self.extensions, config.init_std)

    def _require_whole(self, config: ModelConfig) -> None:
        """Raise a ConfigError if settings contradict the name, or two extensions provide the same."""
        for name in self.loss_names:
            if config.losses.get(name) is None:
                raise ConfigError(f"{self.name} is to carry {name}, and its losses have none; add losses.{name}")
        owners: dict[str, str] = {}
        for name, cls in self.extension_types.items():
            for branch in cls.provides(getattr(config, name)):
                if branch in owners:
                    raise ConfigError(
                        f"{self.name}: {owners[branch]} and {name} both provide the {branch} branch; leave one out"
                    )
                owners[branch] = name

    @property
    def provided(self) -> frozenset[str]:
        """Branches that extensions provide."""
        parts = (cls.provides(getattr(self.config, name)) for name, cls in self.extension_types.items())
        return frozenset[str]().union(*parts)

    @property
    def keeps_frames(self) -> bool:
        """Whether an extension reads frames."""
        return any(cls.reads_frames(getattr(self.config, name)) for name, cls in self.extension_types.items())

    def _extensions(self) -> list[Extension]:
        return list(self.extensions.values())  # type: ignore[arg-type]

    def encode_queries(self, queries: QueryBatch) -> EncodedQueries:
        """The method's encodings and what the extensions add."""
        encoded = super().encode_queries(queries)  # type: ignore[safe-super]
        for extension in self._extensions():
            encoded = extension.encode_queries(self, queries, encoded)
        return encoded

    def encode_videos(self, videos: VideoBatch) -> EncodedVideos:
        """The method's encodings and what the extensions add."""
        encoded = super().encode_videos(videos)  # type: ignore[safe-super]
        for extension in self._extensions():
            encoded = extension.encode_videos(self, videos, encoded)
        return encoded

    def score(self, queries: EncodedQueries, videos: EncodedVideos) -> Scores:
        """The method's own branches and those of the extensions."""
        scores = super().score(queries, videos)  # type: ignore[safe-super]
        for extension in self._extensions():
            added = extension.score(self, queries, videos)
            scores = scores if added is None else scores.joined(added)
        return scores

    def losses(
        self, queries: EncodedQueries, videos: EncodedVideos, batch: TrainingBatch, *, draws: Draws, epoch: int
    ) -> dict[str, Float[Tensor, ""]]:
        """The method's own terms and those of the extensions."""
        terms = super().losses(queries, videos, batch, draws=draws, epoch=epoch)  # type: ignore[safe-super]
        for extension in self._extensions():
            terms |= extension.losses(self, queries, videos, batch, draws=draws, epoch=epoch)
        return terms

    def timeline(self, videos: EncodedVideos) -> tuple[Float[Tensor, "V N D"], Bool[Tensor, "V N"] | None]:
        """The method's own, or that of an extension that replaces it."""
        for extension in self._extensions():
            replaced = extension.timeline(videos)
            if replaced is not None:
                return replaced
        return super().timeline(videos)

    def released_names(self) -> Names:
        """The authors' parameter names of the whole.

        Raises: CheckpointError for a composition that was not released.
        """
        names = super().released_names()
        for extension in self._extensions():
            if self.method not in extension.released_on:
                known = ", ".join(f"{method}+{extension.name}" for method in sorted(extension.released_on)) or "none"
                raise CheckpointError(f"{self.name}: no released checkpoint is known; of {extension.name}: {known}")
            names |= extension.released_names(f"extensions.{extension.name}")
        return names


@cache
def compose(method: type[RetrievalModel], attached: tuple[str, ...]) -> type[RetrievalModel]:
    """The class of a method with attachments: its settings hold a section for each extension, and the named losses.

    Raises: UnknownNameError for an unknown attachment, ConfigError for one that does not fit, with the reason.
    """
    carried = method.Config(query_dim=1, video_dim=1).losses
    for name in attached:
        _require_fit(method, name, carried)
    extensions = {name: EXTENSIONS[name] for name in attached if name in EXTENSIONS}
    losses = tuple(name for name in attached if name not in EXTENSIONS)
    full_name = "+".join((method.name, *attached))
    fields: list[Any] = [(name, cls.Config, cls.Config()) for name, cls in extensions.items()]
    all_losses = dataclasses.field(default_factory=lambda: {**carried, **{name: {} for name in losses}})
    fields.append(("losses", LossSettings, all_losses))

    def absent_terms(config: ModelConfig) -> frozenset[str]:
        """Those of the method and of what is attached to it."""
        of_extensions = (cls.absent_terms(getattr(config, name)) for name, cls in extensions.items())
        return method.Config.absent_terms.fget(config).union(*of_extensions)  # type: ignore[attr-defined]

    namespace = {"absent_terms": property(absent_terms)}
    config = dataclasses.make_dataclass(
        "Config", fields, bases=(method.Config,), namespace=namespace, frozen=True, kw_only=True
    )
    own = {"name": full_name, "method": method.name, "Config": config, "__doc__": method.__doc__}
    own |= {"extension_types": extensions, "loss_names": losses, "__module__": method.__module__}
    return type(f"Composed{method.__name__}", (Composed, method), own)


def _require_fit(method: type[RetrievalModel], name: str, carried: Mapping[str, Any]) -> None:
    known = sorted({*EXTENSIONS, *attached_losses()})
    if name not in known:
        raise UnknownNameError.among("attachment", name, known)
    if name in carried:
        raise ConfigError(f"{method.name} carries {name} already; change its settings with losses.{name}")
    if name not in EXTENSIONS:
        return
    if EXTENSIONS[name].replaces_clips and not method.has_clips:
        raise ConfigError(
            f"{name} does not fit {method.name}: it replaces clips, and {method.name} has none to replace"
        )
    if missing := sorted(EXTENSIONS[name].branches - method.places):
        places = ", ".join(sorted(method.places)) or "none"
        raise ConfigError(
            f"{name} does not fit {method.name}: it provides the {', '.join(missing)} branch of the score, and "
            f"{method.name} has no place for it (its places: {places})"
        )
