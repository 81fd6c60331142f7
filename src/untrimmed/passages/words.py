"""Split texts into words, for the full-text index, for exact phrases and to mark matches.

Words are compared without case and accents. Vowel signs, such as those of Hindi, are letters. In scripts without blanks
between words (Chinese, Japanese, Thai), each character counts as a word, so that an exact phrase can be found. In
Korean, each syllable counts as a word, because particles are attached to words.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    r"\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff"
)
# Files use several characters for an apostrophe inside a word. Some of them are letters (ʼ ʻ) or accents (` ´).
_APOSTROPHES = "'’‘`´＇ʼʻ"
# a letter with its marks, which `_without_marks` has replaced by "\0"
_LETTER = rf"(?:(?![{_UNSPACED}{_APOSTROPHES}])[^\W_]\0*)"
# In French and Italian, a shortened word and an apostrophe may precede a word: l'homme, dell'acqua. Both can be found.
_ELIDED = r"(?<![^\W_])(?i:[cdjlmnst]|qu|jusqu|lorsqu|puisqu|quoiqu|all|coll|dall|dell|nell|quell|sull|un)"
# a number with thousands separators, such as 40,000 or 1.250.000; a query without separators also finds it
_NUMBER_SEPARATOR = "[.,'’\u00a0\u202f]"
_NUMBER = rf"(?<![^\W_])(?<!\d[.,])\d{{1,3}}(?:{_NUMBER_SEPARATOR}\d{{3}})+(?![^\W_])"
_SYLLABLE = r"[\u1100-\u115f][\u1160-\u11a7]?[\u11a8-\u11ff]?"  # a Korean syllable in decomposed form
_WORD = re.compile(
    rf"{_NUMBER}|{_SYLLABLE}|[{_UNSPACED}]\0*"
    rf"|{_ELIDED}(?=[{_APOSTROPHES}](?![sS]\b){_LETTER})|{_LETTER}+(?:[{_APOSTROPHES}]{_LETTER}+)*"
)
_MARKS = {"Mn", "Mc", "Me", "Cf"}  # categories of marks (accents, vowel signs) and of invisible characters in words
# Marks that do not change a word: accents of Latin, Greek and Cyrillic, Hebrew points, Arabic harakat, and variation
# selectors. Vowel signs of other scripts, such as Devanagari, are letters.
_ACCENTS = re.compile(r"[\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\ufe00-\ufe0f]")
# Letters that Unicode does not decompose into a letter and an accent. People often type the plain letters instead.
_PLAIN_LETTERS = str.maketrans(
    {"æ": "ae", "đ": "d", "ð": "d", "ħ": "h", "ı": "i", "ł": "l", "ø": "o", "œ": "oe", "ŧ": "t", "þ": "th"}
)
_SYMBOLS = frozenset("+#%&@§°$€£¥=<>")  # in a quoted phrase, they must match too: C++, 5%, #metoo
_QUOTED = re.compile(r'"([^"]*)"|“([^”]*)”|„([^“”]*)[“”]|«([^»]*)»')
_OPENING_QUOTE = re.compile(r'(?:^|\s)["“„«](?=\S)')  # not the inch sign in `7" screen`
# English words that do not describe the content of a passage. They are ignored in a query that has other words.
_STOP_WORDS = """
    a about after all also am an and any are as at be because been before being both but by can could did do does dont
    during each few for from had has have he her here him his how i if im in into is it its just me more most my no not
    of on or other our out over own s same she so some t than that the their them then there these they this to too
    under until up us very was we were what when where which while who will with would you your youre
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
_POSSESSIVE = re.compile(rf"(?<=[^\W\d_])[{_APOSTROPHES}][sS]$")
# Words that are not a possessive with 's: let's. They are often written without an apostrophe.
_CONTRACTED = {"he", "here", "how", "it", "let", "she", "that", "there", "what", "when", "where", "who", "why"}
_DIVISIONS = ("- ", "\u2010 ")  # between the parts of a hyphenated word, after lines are joined with a space
_WHOLE_TEXT = 0.95  # strength of a passage that contains the whole text of the query, word for word
WORDS_VERSION = 6  # increased whenever `indexed_text` changes; `untrimmed index` then updates the index of words
MAX_WORD = 40  # longer words are truncated, in the index and in queries


@dataclass(frozen=True)
class TextWord:
    """A word of a text, as `text[start:end]`, and the form in which it is compared with other words."""

    form: str
    start: int
    end: int


def words_of(text: str) -> list[TextWord]:
    """Return the words of a text in order.

    >>> [word.form for word in words_of("Don't panic, CAFÉ-owner!")]
    ['dont', 'panic', 'cafe', 'owner']
    >>> [word.form for word in words_of("l'étang de l’ami")]
    ['l', 'etang', 'de', 'l', 'ami']
    >>> [word.form for word in words_of("40,000 men, 3.14 or 1.250.000,50")]
    ['40000', 'men', '3', '14', 'or', '1250000', '50']
    """
    words = []
    for match in _WORD.finditer(_without_marks(text)):
        if form := folded(text[match.start() : match.end()]):
            words.append(TextWord(form, match.start(), match.end()))
    return words


def word_lists(text: str) -> list[list[TextWord]]:
    """Return the words of a text as one list, or as two if hyphens may divide words: the second list joins the parts.

    >>> [[word.form for word in words] for words in word_lists("new bud- get cuts")]
    [['new', 'bud', 'get', 'cuts'], ['new', 'budget', 'cuts']]
    """
    words = words_of(text)
    joined: list[TextWord] = []
    for word in words:
        part = joined[-1] if joined else word
        is_divided = text[part.end : word.start] in _DIVISIONS and text[part.end - 1].isalpha()
        if is_divided and text[word.start].islower():
            joined[-1] = TextWord((part.form + word.form)[:MAX_WORD], part.start, word.end)
        else:
            joined.append(word)
    return [words] if len(joined) == len(words) else [words, joined]


def _without_marks(text: str) -> str:
    """Return a text of the same length in which each mark is replaced by "\\0"."""
    if text.isascii():
        return text
    return "".join("\0" if unicodedata.category(character) in _MARKS else character for character in text)


def folded(word: str) -> str:
    """Return a word without case, accents, apostrophes, invisible characters and the 's of a possessive.

    >>> folded("Ärger"), folded("NASA’s"), folded("Let's"), folded("80's"), folded("مُحَمَّد"), folded("हिन्दी")
    ('arger', 'nasa', 'lets', '80s', 'محمد', 'हिन्दी')
    >>> folded("Wałęsa"), folded("Smørrebrød"), folded("Œuvre"), folded("don`t"), folded("Пʼять")
    ('walesa', 'smorrebrod', 'oeuvre', 'dont', 'пять')
    """
    if word[0].isdigit():
        word = re.sub(rf"(?<=\d){_NUMBER_SEPARATOR}(?=\d)", "", word)
    owner = _POSSESSIVE.sub("", word)
    if owner.lower() not in _CONTRACTED:
        word = owner
    if word.isascii():
        return word.lower().replace("'", "").replace("`", "")[:MAX_WORD]
    visible = "".join(
        letter for letter in word.casefold() if letter not in _APOSTROPHES and unicodedata.category(letter) != "Cf"
    )
    marked = _ACCENTS.sub("", unicodedata.normalize("NFKD", visible)).translate(_PLAIN_LETTERS)
    return unicodedata.normalize("NFC", marked)[:MAX_WORD]


def indexed_text(text: str) -> str:
    """Return the folded words of a text, separated by blanks, for the full-text index.

    >>> indexed_text("Don't panic!")
    'dont panic'
    """
    return " | ".join(_forms(words) for words in word_lists(text))


def _forms(words: Iterable[TextWord]) -> str:
    return " ".join(word.form for word in words)


def _with_symbols(text: str, words: Iterable[TextWord]) -> str:
    """Return the words and symbols of a text, with a blank before and after each. A decimal number is one word.

    >>> text = "R&D costs: +3.5 %"
    >>> _with_symbols(text, words_of(text))
    ' r & d costs + 3.5 % '
    """
    parts: list[str] = []
    end = 0
    for word in [*words, TextWord("", len(text), len(text))]:
        between = text[end : word.start]
        if parts and between in (".", ",") and text[end - 1].isdigit() and word.form[:1].isdigit():
            parts[-1] += f".{word.form}"
        else:
            parts += [symbol for symbol in unicodedata.normalize("NFKC", between) if symbol in _SYMBOLS]
            parts += filter(None, [word.form])
        end = word.end
    return f" {' '.join(parts)} "


@dataclass(frozen=True)
class TextQuery:
    """The words of a sentence, and its phrases in quotes. A matching passage contains each phrase exactly."""

    text: str  # the sentence without quotation marks
    words: tuple[str, ...]  # without repetitions; without stop words, unless all are stop words
    phrases: tuple[tuple[str, ...], ...] = ()
    with_symbols: tuple[str, ...] = ()  # the phrases that contain symbols, as `_with_symbols` returns them

    @classmethod
    def of(cls, text: str) -> TextQuery:
        """Parse a sentence.

        >>> TextQuery.of('the "budget cuts" of May').phrases
        (('budget', 'cuts'),)
        """
        quoted = ["".join(filter(None, match.groups())) for match in _QUOTED.finditer(text)]
        phrases = [tuple(word.form for word in words_of(phrase)) for phrase in quoted]
        forms = list(dict.fromkeys(word.form for word in words_of(text)))
        content = [form for form in forms if form not in STOP_WORDS]
        plain = _QUOTED.sub(lambda match: "".join(filter(None, match.groups())), text)
        marked = [_with_symbols(phrase, words_of(phrase)) for phrase in quoted]
        with_symbols = tuple(phrase for phrase in marked if _SYMBOLS.intersection(phrase))
        return cls(plain, tuple(content or forms), tuple(filter(None, phrases)), with_symbols)

    def matches(self, text: str) -> list[TextWord]:
        """Return the words of a text that are in the query. Stop words are only returned as parts of exact phrases."""
        single = set(self.words)
        found: set[TextWord] = set()
        for words in word_lists(text):
            is_match = [word.form in single for word in words]
            for start, count in self._phrase_starts(words):
                is_match[start : start + count] = [True] * count
            found.update(itertools.compress(words, is_match))
        return sorted(found, key=lambda word: word.start)

    def phrase_places(self, text: str) -> list[list[TextWord]]:
        """Return each occurrence of a phrase of the query in a text, in order: the words of the phrase."""
        return [
            words[start : start + count] for words in word_lists(text) for start, count in self._phrase_starts(words)
        ]

    def _phrase_starts(self, words: Sequence[TextWord]) -> list[tuple[int, int]]:
        """Return the position of the first word, and the number of words, of each occurrence of a phrase, in order."""
        forms = [word.form for word in words]
        return sorted(
            (start, len(phrase))
            for phrase in map(list, self.phrases)
            for start in range(len(forms) - len(phrase) + 1)
            if forms[start : start + len(phrase)] == phrase
        )

    def contains_phrases(self, text: str) -> bool:
        """Whether a text contains each phrase of the query."""
        words_of_text = f" {indexed_text(text)} "
        if not all(f" {' '.join(phrase)} " in words_of_text for phrase in self.phrases):
            return False
        contents = [_with_symbols(text, words) for words in word_lists(text)] if self.with_symbols else []
        return all(any(phrase in content for content in contents) for phrase in self.with_symbols)


def quote_problem(text: str) -> str:
    """Return what is wrong with the quotes of a sentence and what to do, or an empty string.

    >>> quote_problem('the "budget cuts'), quote_problem('a 7" screen'), quote_problem('the "budget" cuts')
    ('a quotation mark is not closed, so the words need not match exactly; add a closing mark after them', '', '')
    """
    if any(not "".join(filter(None, match.groups())).strip() for match in _QUOTED.finditer(text)):
        return "the quotation marks are empty; write words between them, or remove the marks"
    if _OPENING_QUOTE.search(_QUOTED.sub("", text)):
        return "a quotation mark is not closed, so the words need not match exactly; add a closing mark after them"
    return ""


def words_strength(query: TextQuery, text: str) -> float:
    """Return how strongly the words of a passage match, from 0 to 1.

    The strength is the share of the query's words that the passage contains. It is reduced if only a few words match.

    >>> words_strength(TextQuery.of("budget cuts in May"), "They cut the budget in May."), words_strength(
    ...     TextQuery.of("budget cuts"), "No more budget cuts!")
    (0.5, 0.95)
    """
    content = f" {indexed_text(text)} "
    if query.phrases:
        return 1.0 if query.contains_phrases(text) else 0.0
    count = sum(f" {word} " in content for word in query.words)
    if not count:
        return 0.0
    if len(query.words) > 1 and f" {_forms(words_of(query.text))} " in content:
        return _WHOLE_TEXT
    return count / len(query.words) * float(1 - 0.5**count)
