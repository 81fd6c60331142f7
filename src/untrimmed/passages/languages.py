"""Convert names of languages to codes. Files and streams use several names for a language; a library uses one code."""

from __future__ import annotations

import re

# for each language the code with two letters, then other codes and the English name
_LANGUAGES = """
    ar ara arabic|bg bul bulgarian|ca cat catalan|cs ces cze czech|da dan danish|de deu ger german|el ell gre greek|
    en eng english|es spa spanish|et est estonian|fa fas per persian|fi fin finnish|fr fra fre french|he heb hebrew|
    hi hin hindi|hr hrv croatian|hu hun hungarian|id ind indonesian|it ita italian|ja jpn japanese|ko kor korean|
    lt lit lithuanian|lv lav latvian|nl dut nld dutch|no nor norwegian|pl pol polish|pt por portuguese|
    ro ron rum romanian|ru rus russian|sk slk slo slovak|sl slv slovenian|sr srp serbian|sv swe swedish|th tha thai|
    tr tur turkish|uk ukr ukrainian|vi vie vietnamese|zh chi zho chinese
"""
_CODES = {name: group.split()[0] for group in _LANGUAGES.split("|") for name in group.split()}


def language_code(name: str) -> str:
    """Return the usual code of a language, given any of its codes or its English name.

    Unknown names are returned unchanged. Codes for no single language, such as `und`, give an empty text.

    >>> language_code("eng"), language_code("German"), language_code("por-BR"), language_code("und")
    ('en', 'de', 'pt-BR', '')
    """
    language, *regions = re.split("[-_]", name)
    code = _CODES.get(language.lower(), language)
    return "" if code.lower() in ("und", "mul", "zxx") else "-".join([code, *regions])


def is_known_language(name: str) -> bool:
    """Whether a text is a code or an English name of a language, with or without a region.

    >>> is_known_language("German"), is_known_language("pt-BR"), is_known_language("extended")
    (True, True, False)
    """
    return re.split("[-_]", name)[0].lower() in _CODES


def is_language(name: str, expected: str) -> bool:
    """Whether a language is the expected one. A code without a region includes all regions.

    >>> is_language("pt-BR", "por"), is_language("pt-BR", "pt-PT"), is_language("pt", "pt-BR")
    (True, False, False)
    """
    code = language_code(name).lower()
    expected = language_code(expected).lower()
    return code == expected or code.startswith(f"{expected}-")
