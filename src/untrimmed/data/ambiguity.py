"""Captions that cannot name their video: another video of the split has an equal or a nearly equal one."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain

from untrimmed.data.annotations import Annotation, plain_text

NEARLY = 0.8
"""The share of words that nearly equal captions have in common (Jaccard index of their sets of words).

By the dense labels of Charades-STA such a caption fits the video of the other one as often as an equal caption does
(2.7 and 2.3 % of pairs count as right), of captions with half of their words in common 0.8 %.
"""

WordSet = frozenset[str]


def ambiguous(annotations: Sequence[Annotation]) -> tuple[int, int]:
    """How many captions have an equal one in another video, and how many an equal or a nearly equal one.

    Equal are texts of the same words in the same order, whatever case, blanks and signs.

    >>> texts = [("a", "A man sits."), ("a", "a man sits"), ("b", "a man  sits"), ("c", "A dog runs to its red ball"),
    ...          ("d", "a dog runs to its ball")]
    >>> ambiguous([Annotation(video, str(number), text) for number, (video, text) in enumerate(texts)])
    (3, 5)
    """
    videos_with: defaultdict[str, set[str]] = defaultdict(set)
    by_words: defaultdict[WordSet, set[str]] = defaultdict(set)
    texts = [plain_text(annotation.text) for annotation in annotations]
    words = [frozenset(text.split()) for text in texts]
    for annotation, text, own in zip(annotations, texts, words, strict=True):
        videos_with[text].add(annotation.video)
        by_words[own].add(annotation.video)
    near = {own: set(videos) for own, videos in by_words.items()}
    for first, second in _pairs(list(by_words)):
        near[first] |= by_words[second]
        near[second] |= by_words[first]
    equal = sum(len(videos_with[text]) > 1 for text in texts)
    return equal, sum(len(near[own]) > 1 for own in words)


def _pairs(sets: list[WordSet]) -> Iterator[tuple[WordSet, WordSet]]:
    """All pairs of different word sets that share at least `NEARLY` of their words.

    Two such sets share one of their rarest words: all but the last `NEARLY` of a set, rarest first. An index of those
    words limits the comparisons.
    """
    count = Counter(chain.from_iterable(sets))
    having: defaultdict[str, list[WordSet]] = defaultdict(list)
    for own in sorted(sets, key=len):
        rarest = sorted(own, key=lambda word: (count[word], word))[: len(own) - math.ceil(NEARLY * len(own)) + 1]
        for other in {other for word in rarest for other in having[word]}:
            common = len(own & other)
            if common >= NEARLY * (len(own) + len(other) - common):
                yield own, other
        for word in rarest:
            having[word].append(own)
