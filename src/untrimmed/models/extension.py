"""What can be attached to a method beyond a loss: a part with weights, encodings, scores and losses of its own.

Adding one: a file in this folder.

    @register_extension("my_part")
    class MyPart(Extension):
        @dataclass(frozen=True, kw_only=True)
        class Config:
            size: int = 6

        def __init__(self, config: Config, model: RetrievalModel): ...
        def encode_videos(self, model, videos, encoded): ...    # and encode_queries: the encodings with more in them
        def score(self, model, queries, videos): ...            # a branch of the score
        def losses(self, model, queries, videos, batch, *, draws, epoch): ...

It is switched on by its name, `create_model("gmmformer_v2+my_part")`, and its settings are the section of that name in
the model's: `my_part.size=4`, in a preset `model: {my_part: {size: 4}}`. Each hook gets the model that carries the
part, so that it can use the model's encoders (again), its retrieval objective (`branch_losses`) and its sizes; `losses`
gets the batch, teacher features included. Encodings that it adds are fields of `EncodedQueries` or `EncodedVideos`.
Weights are drawn like all others once the part is built. `presets/attachments/my_part/<dataset>.yaml` holds the
weights of its terms.
"""

from abc import ABC
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from jaxtyping import Bool, Float
from torch import Tensor, nn

from untrimmed.batches import EncodedQueries, EncodedVideos, QueryBatch, TrainingBatch, VideoBatch
from untrimmed.errors import ConfigError
from untrimmed.losses.draws import Draws
from untrimmed.models.base import RetrievalModel
from untrimmed.models.released import Names
from untrimmed.scores.score import Scores


class Extension(nn.Module, ABC):
    """A part that a method carries; by default it adds nothing."""

    name: ClassVar[str]  # set by `register_extension`
    Config: ClassVar[type[Any]]
    branches: ClassVar[frozenset[str]] = frozenset()  # branches of the score that it may provide
    replaces_clips: ClassVar[bool] = False  # only for methods whose clips meet sentences and may be any vectors
    released_on: ClassVar[frozenset[str]] = frozenset()  # methods on which its authors released it

    def __init__(self, config: Any, model: RetrievalModel):
        super().__init__()
        self.config = config

    @classmethod
    def provides(cls, config: Any) -> frozenset[str]:
        """Those of its branches that it provides with these settings, in place of the method's."""
        return cls.branches

    @classmethod
    def absent_terms(cls, config: Any) -> frozenset[str]:
        """Those of its loss terms that these settings leave out."""
        return frozenset()

    @classmethod
    def reads_frames(cls, config: Any) -> bool:
        """Whether it needs frames in the encoded videos with these settings."""
        return False

    def encode_queries(self, model: RetrievalModel, queries: QueryBatch, encoded: EncodedQueries) -> EncodedQueries:
        """The encoded queries with what the part adds to them."""
        return encoded

    def encode_videos(self, model: RetrievalModel, videos: VideoBatch, encoded: EncodedVideos) -> EncodedVideos:
        """The encoded videos with what the part adds to them."""
        return encoded

    def score(self, model: RetrievalModel, queries: EncodedQueries, videos: EncodedVideos) -> Scores | None:
        """The branches that the part provides, and their weights in the fused score."""
        return None

    def losses(
        self,
        model: RetrievalModel,
        queries: EncodedQueries,
        videos: EncodedVideos,
        batch: TrainingBatch,
        *,
        draws: Draws,
        epoch: int,
    ) -> dict[str, Float[Tensor, ""]]:
        """The part's loss terms by name, unweighted."""
        return {}

    def timeline(self, videos: EncodedVideos) -> tuple[Float[Tensor, "V N D"], Bool[Tensor, "V N"] | None] | None:
        """What stands for the method's timeline where the part changes what that would read, else None."""
        return None

    def released_names(self, prefix: str) -> Names:
        """The authors' names of the part's parameters; ours begin with `prefix`."""
        return {}


E = TypeVar("E", bound=type[Extension])
EXTENSIONS: dict[str, type[Extension]] = {}


def register_extension(name: str) -> Callable[[E], E]:
    """Make an extension available under a name.

    Raises: ConfigError when the name is taken.
    """

    def add(cls: E) -> E:
        if name in EXTENSIONS:
            raise ConfigError(f"two extensions are named {name!r}: {EXTENSIONS[name].__module__} and {cls.__module__}")
        cls.name = name
        EXTENSIONS[name] = cls
        return cls

    return add
