"""Convert names of languages to codes. Files and streams use several names for a language; a library uses one code."""

from __future__ import annotations

import re
import unicodedata

# for each language the code with two letters, then other codes, the English name, and names in the language itself
_LANGUAGES = """
    ar ara arabic العربية|bg bul bulgarian български|ca cat catalan català|cs ces cze czech čeština|da dan
    danish dansk|de deu ger german deutsch|el ell gre greek ελληνικά|en eng english|es spa spanish español
    espanol castellano|et est estonian|fa fas per persian فارسی|fi fin finnish suomi|fr fra fre french français
    francais|he heb hebrew עברית|hi hin hindi हिन्दी|hr hrv croatian hrvatski|hu hun hungarian magyar|id ind
    indonesian|it ita italian italiano|ja jpn japanese jp 日本語|ko kor korean kr 한국어|lt lit lithuanian|lv lav
    latvian|nl dut nld dutch nederlands|no nor norwegian norsk|pl pol polish polski|pt por portuguese português
    portugues|ro ron rum romanian română|ru rus russian русский|sk slk slo slovak|sl slv slovenian|sr srp
    serbian|sv swe swedish svenska|th tha thai|tr tur turkish türkçe turkce|uk ukr ukrainian українська|vi vie
    vietnamese|zh chi zho chinese cn 中文
"""
_CODES = {name: group.split()[0] for group in _LANGUAGES.split("|") for name in group.split()}


def language_code(name: str) -> str:
    """Return the usual code of a language, given any of its codes or names.

    Unknown names are returned unchanged. Codes for no single language, such as `und`, give an empty text.

    >>> language_code("eng"), language_code("German"), language_code("por-BR"), language_code("und")
    ('en', 'de', 'pt-BR', '')
    """
    language, *regions = re.split("[-_]", unicodedata.normalize("NFC", name))
    code = _CODES.get(language.lower(), language)
    return "" if code.lower() in ("und", "mul", "zxx") else "-".join([code, *regions])


def is_known_language(name: str) -> bool:
    """Whether a text is a code or a name of a language, with or without a region.

    >>> is_known_language("German"), is_known_language("pt-BR"), is_known_language("extended")
    (True, True, False)
    """
    return re.split("[-_]", unicodedata.normalize("NFC", name))[0].lower() in _CODES


def is_language(name: str, expected: str) -> bool:
    """Whether a language is the expected one. A code without a region includes all regions.

    >>> is_language("pt-BR", "por"), is_language("pt-BR", "pt-PT"), is_language("pt", "pt-BR")
    (True, False, False)
    """
    code = language_code(name).lower()
    expected = language_code(expected).lower()
    return code == expected or code.startswith(f"{expected}-")
