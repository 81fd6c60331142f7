"""Count captions that do not identify their video, because another video has an equal or nearly equal caption."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain

from untrimmed.data.annotations import Annotation, plain_text

MIN_OVERLAP = 0.8
"""Two captions count as nearly equal if the Jaccard index of their sets of words has at least this value.

The dense labels of Charades-STA list every video that a caption describes. According to these labels, a caption also
describes the other video in 2.7 % of nearly equal pairs, 2.3 % of equal pairs, and 0.8 % of pairs that share half of
their words.
"""

WordSet = frozenset[str]


def count_ambiguous(annotations: Sequence[Annotation]) -> tuple[int, int]:
    """Return how many captions have an equal caption in another video, and how many have an equal or similar caption.

    Texts are equal if they have the same words in the same order. Case, white space and punctuation are ignored. Texts
    are similar if their word sets have a Jaccard index of at least `MIN_OVERLAP`.

    >>> texts = [("a", "A man sits."), ("a", "a man sits"), ("b", "a man  sits"), ("c", "A dog runs to its red ball"),
    ...          ("d", "a dog runs to its ball")]
    >>> count_ambiguous([Annotation(video, str(number), text) for number, (video, text) in enumerate(texts)])
    (3, 5)
    """
    videos_with: defaultdict[str, set[str]] = defaultdict(set)
    by_words: defaultdict[WordSet, set[str]] = defaultdict(set)
    texts = [plain_text(annotation.text) for annotation in annotations]
    words = [frozenset(text.split()) for text in texts]
    for annotation, text, word_set in zip(annotations, texts, words, strict=True):
        videos_with[text].add(annotation.video)
        by_words[word_set].add(annotation.video)
    near = {word_set: set(videos) for word_set, videos in by_words.items()}
    for first, second in _pairs(list(by_words)):
        near[first] |= by_words[second]
        near[second] |= by_words[first]
    equal = sum(len(videos_with[text]) > 1 for text in texts)
    return equal, sum(len(near[word_set]) > 1 for word_set in words)


def _pairs(sets: list[WordSet]) -> Iterator[tuple[WordSet, WordSet]]:
    """Yield all pairs of different word sets with a Jaccard index of at least `MIN_OVERLAP`.

    Two such sets share at least one of their rarest words (prefix filtering). Therefore only sets with a common rare
    word are compared.
    """
    count = Counter(chain.from_iterable(sets))
    by_rare_word: defaultdict[str, list[WordSet]] = defaultdict(list)
    for larger in sorted(sets, key=len):
        num_rare = len(larger) - math.ceil(MIN_OVERLAP * len(larger)) + 1
        rarest = sorted(larger, key=lambda word: (count[word], word))[:num_rare]
        for smaller in {word_set for word in rarest for word_set in by_rare_word[word]}:
            common = len(larger & smaller)
            if common >= MIN_OVERLAP * (len(larger) + len(smaller) - common):
                yield larger, smaller
        for word in rarest:
            by_rare_word[word].append(larger)
