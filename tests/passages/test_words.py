"""Words are found in all scripts, and the places of words refer to the text as it is stored."""

import unicodedata

import pytest

from untrimmed.passages.words import TextQuery, indexed_text, words_of, words_strength


def marked(query, text):
    return [text[word.start : word.end] for word in TextQuery.of(query).matches(text)]


@pytest.mark.parametrize("text", ["मेरा स्कूल", "ভাষা কী", "தமிழ் மொழி", "مُحَمَّدٌ رسول", "Café olé", "שָׁלוֹם רב"])
def test_marks_do_not_split_words(text):
    assert [text[word.start : word.end] for word in words_of(text)] == text.split()


def test_vowel_signs_are_letters():
    assert marked('"काल"', "मेरा स्कूल") == []
    assert marked("की", "का की कु") == ["की"]
    assert marked("か", "がか") == ["か"]


def test_accents_and_harakat_are_ignored():
    assert marked("محمد", "قال مُحَمَّدٌ") == ["مُحَمَّدٌ"]
    assert marked("مُحَمَّدٌ", "محمد") == ["محمد"]
    assert marked("ecole", "L’École, école") == ["École", "école"]
    assert marked("мой", "Мои") == ["Мои"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Qu'il l’aime", ["Qu", "il", "l", "aime"]),
        ("dell'acqua, un'altra", ["dell", "acqua", "un", "altra"]),
        ("Don't! All's well, o'clock, I'd, the D's", ["Don't", "All's", "well", "o'clock", "I'd", "the", "D's"]),
    ],
)
def test_words_after_a_shortened_word_are_found(text, words):
    assert [text[word.start : word.end] for word in words_of(text)] == words


@pytest.mark.parametrize("text", ["Crème brûlée", "한국어 방송", "がぎ"])
def test_decomposed_text_is_the_same_word(text):
    decomposed = unicodedata.normalize("NFD", text)
    assert decomposed != text
    assert indexed_text(decomposed) == indexed_text(text)
    assert marked(decomposed, text) == marked(text, text) != []
    assert "".join(marked(text, decomposed)) == "".join(decomposed.split())


def test_invisible_characters_do_not_split_words():
    assert marked("کتاب\u200cها", "کتابها") == ["کتابها"]
    assert marked("rück\u00adsicht", "Rücksicht") == ["Rücksicht"]


@pytest.mark.parametrize(
    ("query", "text", "strength"),
    [
        ('"C++"', "ça c'est sûr", 0.0),
        ('"C++"', "We write it in c++, not in C.", 1.0),
        ('"rose 5%."', "It rose 5% today.", 1.0),
        ('"5%"', "only 5 €", 0.0),
        ('"5%"', "5 or 15%", 0.0),
        ('"5%"', "5 or 2.5%", 0.0),
        ('"5 %"', "It rose 5%.", 1.0),
        ('"10 € each"', "10€ each", 1.0),
        ('"[C#]"', "in C# or F#", 1.0),
        ('"5%"', "売上は5%の増加", 1.0),
        ('"增长5%"', "去年销售增长5%左右", 1.0),
        ('"5%"', "매출이 5%를 넘었다", 1.0),
        ('"5%"', "売上は15%の増加", 0.0),
        ('"$40,000"', "It cost $40000.", 1.0),
        ('"$5"', "US$5 million", 1.0),
        ('"R & D"', "the R&D budget", 1.0),
        ('"R&D"', "roaring R and D", 0.0),
        ('"Pokémon #1"', "pokemon#1", 1.0),
        ('".5%"', ".5 %", 1.0),
        ("C++", "the letter C", 0.5),
    ],
)
def test_symbols_must_match_in_quotes(query, text, strength):
    assert words_strength(TextQuery.of(query), text) == strength
