"""Call the hooks of a model one by one and check their results.

If a method or an attachment has a mistake, the error message is one line with the hook, the expected axes and the
returned shape. Before its first step, training calls these functions on a few items (`training/rehearsal.py`).
"""

import dataclasses
import traceback
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from jaxtyping import Bool, Float, Int
from torch import Tensor

from untrimmed.batches import Encoded, EncodedQueries, EncodedVideos, QueryBatch, Record, VideoBatch
from untrimmed.devices import is_out_of_memory
from untrimmed.errors import ConfigError, UntrimmedError, named, nearest, one_line, shown_value
from untrimmed.models.attachment import TrainingStep
from untrimmed.models.base import RetrievalModel
from untrimmed.plugins import is_installed
from untrimmed.scores.score import Score, Scores

E = TypeVar("E", bound=Encoded)
T = TypeVar("T")
# keys in a line of metrics.jsonl that are not losses
EPOCH_KEYS = ("epoch", "updates", "learning_rate", "val", "seconds")
_UNITS = {"Q": " queries", "V": " videos"}


def checked_queries(model: RetrievalModel, queries: QueryBatch) -> EncodedQueries:
    """Return the queries, encoded by the method and its attachments. The result of each hook is checked.

    Raises: ConfigError with the name of the first hook whose result has the wrong type or axes.
    """
    return _checked_vectors(model, queries, EncodedQueries, "compute_query_vectors", "encode_queries")


def checked_videos(model: RetrievalModel, videos: VideoBatch) -> EncodedVideos:
    """Return the videos, encoded by the method and its attachments; raises the errors of `checked_queries`."""
    return _checked_vectors(model, videos, EncodedVideos, "compute_video_vectors", "encode_videos")


def _checked_vectors(
    model: RetrievalModel, batch: QueryBatch | VideoBatch, kind: type[E], method_hook: str, attachment_hook: str
) -> E:
    """Return the result of the method's hook with the additions of each attachment's hook."""
    inputs = batch.tensors()
    hook = f"{_of(model)}.{method_hook}"
    result = _call(hook, inputs, getattr(model, method_hook), batch)
    encoded = _checked_record(hook, result, kind, len(batch))
    for part in model.carried:
        hook = f"{_of(part)}.{attachment_hook}"
        result = _call(hook, inputs, getattr(part, attachment_hook), model, batch, encoded)
        encoded = _checked_record(hook, result, kind, len(batch))
    return encoded


def checked_scores(model: RetrievalModel, queries: EncodedQueries, videos: EncodedVideos) -> Scores:
    """Return the scores of the method and its attachments; raises the errors of `checked_queries`."""
    inputs = queries.tensors() | videos.tensors()
    shape = (len(queries), len(videos))
    hook = f"{_of(model)}.compute_scores"
    scores = _call(hook, inputs, model.compute_scores, queries, videos)
    _require_scores(hook, scores, shape)
    for part in model.carried:
        hook = f"{_of(part)}.score"
        added = _call(hook, inputs, part.score, model, queries, videos)
        if added is not None:
            _require_scores(hook, added, shape)
            if both := sorted(scores.branches.keys() & added.branches.keys()):
                raise ConfigError(f"{hook} returned the branch {both[0]!r}, which the model already has; rename it")
            scores = scores.joined(added)
    if not scores.weights:
        raise ConfigError(f"{_of(model)}.compute_scores returned no weights; give each branch its weight")
    return scores


def checked_losses(model: RetrievalModel, step: TrainingStep) -> dict[str, Tensor]:
    """Return the loss terms of the method and its attachments; raises the errors of `checked_queries`."""
    inputs = step.queries.tensors() | step.videos.tensors()
    terms: dict[str, Tensor] = {}
    for owner, hook, written, arguments in (
        (model, "compute_losses", "compute_losses", (step,)),
        *((part, "losses", part.loss_hook, (model, step)) for part in model.carried),
    ):
        name = f"{_of(owner)}.{written}"
        added = _call(name, inputs, getattr(owner, hook), *arguments)
        if not isinstance(added, Mapping):
            raise ConfigError(
                f"{name} returned {_shown(added)}, expected a dictionary of loss terms by name; return one"
            )
        for term, value in added.items():
            _require_term(name, term, value)
            if term in terms:
                raise ConfigError(f"{name} returned the term {term!r}, which the model already has; rename it")
            terms[term] = value
    return terms


def check_timeline(model: RetrievalModel, queries: EncodedQueries, videos: EncodedVideos) -> None:
    """Check the results of `timeline` and `similarity`, which are used to find moments.

    Raises: NoTimelineError for a method that encodes a video as a single vector, and the errors of `checked_queries`.
    """
    inputs = videos.tensors()
    hook = f"{_of(model)}.compute_timeline"
    timeline = _call(hook, inputs, model.timeline, videos)
    if not isinstance(timeline, tuple) or len(timeline) != 2:
        raise ConfigError(f"{hook} returned {_shown(timeline)}, expected vectors and their mask (or None); return both")
    units, mask = timeline
    axes = _Axes(hook, Q=len(queries), V=len(videos))
    axes.require("the vectors", units, Float[Tensor, "V N D"])
    if mask is not None:
        axes.require("the mask", mask, Bool[Tensor, "V N"])
    axes.hook = f"{_of(model)}.similarity"
    similarity = _call(axes.hook, queries.tensors() | {"units": units}, model.similarity, queries, units)
    axes.require("the result", similarity, Float[Tensor, "Q V N"])


def check_vectors(model: RetrievalModel, queries: EncodedQueries, videos: EncodedVideos) -> None:
    """Check the results of `compute_sketch` and `compute_probe`; raises ConfigError."""
    rows = {}
    for hook, encoded, annotation in (
        ("sketch", videos, Float[Tensor, "V N D"]),
        ("probe", queries, Float[Tensor, "Q M D"]),
    ):
        name = f"{_of(model)}.compute_{hook}"
        rows[hook] = _call(name, encoded.tensors(), getattr(model, hook), encoded)
        for branch, vectors in rows[hook].items():
            _Axes(name, Q=len(queries), V=len(videos)).require(f"branch {branch!r}", vectors, annotation)
    if missing := sorted(rows["probe"].keys() - rows["sketch"].keys()):
        raise ConfigError(
            f"{_of(model)}.compute_probe returned the branch {missing[0]!r}, compute_sketch returned "
            f"{named(rows['sketch']) or 'none'}; use the same names in both"
        )


@contextmanager
def reporting(hook: str, inputs: Mapping[str, Tensor] | None = None) -> Iterator[None]:
    """Return a context that converts exceptions from code outside this package to ConfigErrors.

    The message contains the line of code and the shapes of `inputs`. Exceptions from this package are bugs and pass
    through unchanged, and so do out-of-memory errors.
    """
    try:
        yield
    except UntrimmedError:
        raise
    except Exception as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not is_installed(frame.filename)]
        if not frames or is_out_of_memory(error):
            raise
        line = f"{frames[-1].filename}:{frames[-1].lineno}"
        shapes = ", ".join(f"{name} {_shape(tensor)}" for name, tensor in (inputs or {}).items())
        received = f"; {hook} received {shapes}" if shapes else f" (in {hook})"
        raise ConfigError(f"{line}: {type(error).__name__}: {one_line(error)}{received}") from error


def outside_function(error: BaseException) -> str | None:
    """Return the name of the outermost function in a traceback that is not from Python or an installed package.

    It is, for example, a hook. Return None if there is no such function.
    """
    codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    return next((code.co_qualname for code in codes if not is_installed(code.co_filename)), None)


def _call(hook: str, inputs: Mapping[str, Tensor], function: Callable[..., T], *arguments: Any) -> T:
    with reporting(hook, inputs):
        return function(*arguments)


def _of(owner: Any) -> str:
    return type(owner).__qualname__


@dataclass
class _Axes:
    """Sizes of named axes. The first tensor with an axis defines its size, and later tensors must agree."""

    hook: str
    sizes: dict[str, int]

    def __init__(self, hook: str, **sizes: int):
        self.hook = hook
        self.sizes = sizes

    def require(self, what: str, value: Any, annotation: Any) -> None:
        """Raise a ConfigError unless a value is a tensor with the axes and the dtype of a jaxtyping annotation."""
        names = annotation.dim_str.split()
        if isinstance(value, annotation) and len(names) == value.ndim:
            sizes = dict(zip(names, value.shape, strict=True))
            if all(self.sizes.get(name, size) == size for name, size in sizes.items()):
                self.sizes = sizes | self.sizes
                return
        known = ", ".join(f"{name} = {self.sizes[name]}{_UNITS.get(name, '')}" for name in names if name in self.sizes)
        raise ConfigError(
            f"{self.hook} returned {what} with {_described(value)}, expected {_number_kind(annotation)} "
            f"[{', '.join(names)}] with {known}"
        )


def _checked_record(hook: str, encoded: Any, kind: type[E], num_rows: int) -> E:
    """Return `encoded` unchanged if its tensors have the annotated axes and `num_rows` rows.

    Raises: ConfigError for a wrong type or a tensor with wrong axes.
    """
    if not isinstance(encoded, kind):
        raise ConfigError(f"{hook} returned {_shown(encoded)}, expected {kind.__name__}(...); return one")
    axis = "Q" if kind is EncodedQueries else "V"
    records: dict[str, Record] = {"": encoded, **{f"{name}.": record for name, record in encoded.attached.items()}}
    for prefix, record in records.items():
        axes = _Axes(hook, **{axis: num_rows})
        for name, annotation in _annotations(type(record)).items():
            value = getattr(record, name)
            if value is not None:
                axes.require(prefix + name, value, annotation)
    if isinstance(encoded, EncodedVideos) and encoded.frames is not None and encoded.frame_mask is None:
        raise ConfigError(
            f"{hook} returned frames without frame_mask, so that padding would count as frames; add "
            "frame_mask=videos.frame_mask"
        )
    return encoded


def _annotations(record: type[Record]) -> dict[str, Any]:
    """Return {field: annotation without None} for the tensors of a record, in the order of its fields."""
    try:
        hints = typing.get_type_hints(record)
    except NameError:  # the annotation contains names that exist only for type checkers
        hints = typing.get_type_hints(record.__mro__[1])
    tensors = {}
    for field in dataclasses.fields(record):
        hint = hints.get(field.name)
        choices = [hint, *typing.get_args(hint)]
        if annotation := next((choice for choice in choices if hasattr(choice, "dim_str")), None):
            tensors[field.name] = annotation
    return tensors


def _number_kind(annotation: Any) -> str:
    kinds = {"bool": "True or False", "float32": "numbers", "int64": "whole numbers"}
    return next((kinds[name] for name in kinds if name in annotation.dtypes), "a tensor")


def _described(value: Any) -> str:
    if not isinstance(value, Tensor):
        return f"type {type(value).__name__}"
    return f"shape {_shape(value)} and dtype {str(value.dtype).removeprefix('torch.')}"


def _shape(tensor: Any) -> list[int]:
    return list(tensor.shape)


def _shown(value: Any) -> str:
    return f"a tensor of shape {_shape(value)}" if isinstance(value, Tensor) else shown_value(value)


def _require_scores(hook: str, scores: Any, shape: tuple[int, int]) -> None:
    if not isinstance(scores, Scores):
        example = 'Scores({"clip": score}, {"clip": 1.0})'
        raise ConfigError(f"{hook} returned {_shown(scores)}, expected {example}; return one")
    for branch, score in scores.branches.items():
        if not isinstance(score, Score):
            message = f"{hook} returned {_shown(score)} for the branch {branch!r}, expected Score(value)"
            raise ConfigError(f"{message}; wrap the values")
        for name, annotation in (("value", Float[Tensor, "Q V"]), ("best", Int[Tensor, "Q V"])):
            value = getattr(score, name)
            if value is not None:
                _Axes(hook, Q=shape[0], V=shape[1]).require(f"the {name} of branch {branch!r}", value, annotation)
    for branch in scores.weights:
        if branch not in scores.branches:
            advice = nearest(branch, scores.branches) or "."
            raise ConfigError(
                f"{hook} gave the branch {branch!r} a weight, but has no such branch{advice} Its branches: "
                f"{', '.join(scores.branches) or 'none'}"
            )


def _require_term(hook: str, term: str, value: Any) -> None:
    if term in ("loss", *EPOCH_KEYS):
        raise ConfigError(
            f"{hook} returned a term named {term!r}, which is another key of metrics.jsonl; rename the term"
        )
    if not isinstance(value, Tensor) or value.ndim or not value.is_floating_point():
        raise ConfigError(
            f"{hook} returned the term {term!r} with {_described(value)}, expected a tensor of one number; return e.g. "
            "its mean()"
        )
