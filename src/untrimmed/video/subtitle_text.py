"""Parse subtitles: files in the formats SubRip, WebVTT and ASS/SSA, and the styled texts of streams.

Files may be broken or hostile. So each line is parsed separately, lines and cues have a maximum length, and cues that
cannot be read are counted and left out. Times are whole milliseconds.
"""

from __future__ import annotations

import codecs
import html
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

MAX_LINE = 10_000
MAX_CUE = 4_000  # characters
MAX_FILE_BYTES = 1 << 28
WITHOUT_END = "with an estimated end, because the end is not after the start"  # a warning, after the number of cues
_SAMPLE_BYTES = 1 << 18
_MIN_READING_MS = 1000
_MAX_READING_MS = 7000
_READING_MS = 60  # assumed duration per character of a cue whose end is not after its start
_ROLL_UP_MS = 100  # a cue that begins at most this long after the end of another may repeat the other's lines

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Legacy encodings of subtitles, by the language in the file name. If there is a language, these are tried first.
_ENCODINGS = {
    ("ru", "uk", "bg", "be", "mk"): ("cp1251", "koi8_r", "cp866", "iso8859_5"),
    ("pl", "cs", "sk", "hu", "hr", "sl", "ro"): ("cp1250", "iso8859_2", "cp852"),
    ("el",): ("cp1253", "iso8859_7", "cp737"),
    ("tr",): ("cp1254", "cp857"),
    ("he",): ("cp1255", "cp862"),
    ("ar", "fa"): ("cp1256", "iso8859_6"),
    ("lt", "lv", "et"): ("cp1257", "iso8859_13"),
    ("vi",): ("cp1258",),
    ("th",): ("cp874",),
    ("zh", "chs", "cht", "zh-tw", "zh-hk"): ("gb18030", "big5"),
    ("ja",): ("cp932", "euc-jp"),
    ("ko",): ("cp949",),
    ("en", "de", "fr", "es", "it", "pt", "nl", "sv", "da", "no", "fi"): ("cp1252", "cp850"),
}
# A guess of the encoding is certain if the file has at least `_MIN_BYTES` bytes that are not ASCII, and if chardet's
# confidence reaches `_MIN_CONFIDENCE`. Right guesses often have a confidence below 0.1.
_MIN_BYTES = 8
_MIN_CONFIDENCE = 0.03

_TIME = r"-?\d{1,4}(?:\s*:\s*\d{1,2}){0,2}\s*(?:[.,:]\s*\d{1,3})?"
_TIMING = re.compile(rf"^\s*({_TIME})\s*-{{1,2}}\s*>\s*({_TIME})(?:\s|$)")
_MAX_TIMES = 200  # times are looked for only in this many characters at the start of a line
_PART_OF_TIMING = re.compile(r"\s*\d[\d\s:.,]*(?:-[->\d\s:.,]*)?")
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>|<!--.*?-->|<\d[\d:.]*>|</?>")
_RUBY = re.compile(r"<r[tp]\b[^<>]*>[^<]*(?:</r[tp]>)?", re.IGNORECASE)  # the pronunciation of the characters before it
_BREAK_TAG = re.compile(r"<(?:br|/p|/div)\b[^<>]*>", re.IGNORECASE)
_OVERRIDE = re.compile(r"\{\\[^{}]*\}|\{[yYcCfFsSoP]:[^{}]*\}")
_ANY_OVERRIDE = re.compile(r"\{[^{}]*\}")
_DRAWING = re.compile(r"\{[^{}]*\\p[1-9]\d*[^{}]*\}.*?(?=\{[^{}]*\\p0[^{}]*\}|$)", re.DOTALL)
_ASS_FIELDS = ["layer", "start", "end", "style", "name", "marginl", "marginr", "marginv", "effect", "text"]


class Cue(NamedTuple):
    """A subtitle: its span in milliseconds, and its plain text on one line."""

    start_ms: int
    end_ms: int
    text: str


@dataclass
class Faults:
    """The problems of a file. The rest of the file is read."""

    broken: int = 0  # number of cues with unreadable times, which are left out
    shortened: int = 0  # number of cues with too many characters, see `MAX_CUE` and `MAX_LINE`
    without_end: int = 0  # number of cues whose end is not after their start, see `with_end`
    is_incomplete: bool = False  # the file ends in the middle of a cue, which is left out
    is_encoding_uncertain: bool = False


class EncodingUnknownError(Exception):
    """Raised if a file is not text."""


def read_cues(file: BinaryIO, suffix: str, language: str, faults: Faults) -> Iterator[Cue]:
    """Yield the cues of a subtitle file (.srt, .vtt, .ass or .ssa), in the order of the file.

    Raises: EncodingUnknownError if the file is not text.
    """
    encoding, is_certain = detect_encoding(file, language)
    faults.is_encoding_uncertain = not is_certain
    file.seek(-min(4, file.seek(0, os.SEEK_END)), os.SEEK_END)
    ends_in_line = not file.read().rstrip(b"\0").endswith((b"\r", b"\n"))  # in UTF-16 and UTF-32, zeros follow
    file.seek(0)
    reader = codecs.getreader(encoding)(file, "replace")
    lines = _lines(reader)
    if suffix in (".ass", ".ssa"):
        cues = _ass_cues(lines, faults)
    else:
        cues = _timed_cues(lines, faults, is_vtt=suffix == ".vtt", ends_in_line=ends_in_line)
    last: Cue | None = None
    for start_ms, end_ms, text in cues:
        if last is not None:
            yield with_end(last, start_ms, faults)
        last = Cue(start_ms, end_ms, text) if text else None
    if getattr(reader, "bytebuffer", b""):  # the file ends in the middle of a character
        faults.is_incomplete = True
    elif last is not None:
        yield with_end(last, None, faults)


def _lines(reader: codecs.StreamReader) -> Iterator[str]:
    """Yield lines without their line ends (line feed or carriage return), truncated to `MAX_LINE` characters."""
    rest = ""
    while block := reader.read(1 << 16):
        rest += block.replace("\0", "")
        is_open = rest.endswith("\r")  # a line feed may follow
        lines = re.split(r"\r\n|\n|\r", rest[:-1] if is_open else rest)
        rest = lines.pop() + ("\r" if is_open else "")
        if len(rest) > MAX_LINE:
            rest = rest[:MAX_LINE]
        yield from (line[:MAX_LINE] for line in lines)
    if rest:
        yield rest.rstrip("\r")


def detect_encoding(file: BinaryIO, language: str = "") -> tuple[str, bool]:
    """Return the encoding of a text file, and whether it is certain.

    It is uncertain if some bytes are invalid, or if it is guessed from few bytes. A known language reduces the possible
    encodings, but does not make such a guess certain.

    Raises: EncodingUnknownError if the file is not text.
    """
    sample = file.read(_SAMPLE_BYTES)
    for mark, encoding in _BOMS:
        if sample.startswith(mark):
            return encoding, True
    if b"\0" in sample:
        even, odd = sample[0::2].count(0), sample[1::2].count(0)
        if max(even, odd) > len(sample) // 8 and min(even, odd) < max(even, odd) // 4:
            return ("utf-16-le" if odd > even else "utf-16-be"), True
        if sample.count(0) * 20 > len(sample):
            raise EncodingUnknownError
    decoder = codecs.getincrementaldecoder("utf-8")()
    block = sample
    try:
        while block:
            decoder.decode(block)
            block = file.read(_SAMPLE_BYTES)
        cut = len(decoder.getstate()[0])  # bytes of a character that the file ends in
        if cut != 1 or not sample[:-1].isascii():  # one such byte may also be a whole character of another encoding
            return "utf-8", True
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        if sample.isascii():  # a long file; its other characters begin later
            sample = block
    text = sample.translate(None, bytes(range(32)) + bytes(range(48, 58)))
    if text.count(b"\x7f") + sum(sample.count(bytes([code])) for code in (1, 2, 3, 4, 5, 6, 7, 8)) > len(sample) // 50:
        raise EncodingUnknownError
    num_bytes = sum(byte > 127 for byte in sample)
    if _is_almost_utf8(sample):
        return "utf-8", False
    from chardet import EncodingEra, detect  # only few files need it

    if named := next((encodings for names, encodings in _ENCODINGS.items() if language.lower() in names), ()):
        named_guess = detect(sample, include_encodings=named, no_match_encoding=named[0])["encoding"]
        if named_guess is not None and _decoded(sample, named_guess) is not None:
            return named_guess, num_bytes >= _MIN_BYTES or len(named) == 1
    if japanese := _japanese(sample):
        return japanese, num_bytes >= _MIN_BYTES
    eras = EncodingEra.MODERN_WEB | EncodingEra.LEGACY_ISO | EncodingEra.DOS
    guess = detect(sample, encoding_era=eras, exclude_encodings=["iso8859_16"])
    is_certain = num_bytes >= _MIN_BYTES and guess["confidence"] >= _MIN_CONFIDENCE
    return guess["encoding"] or "cp1252", is_certain


def _decoded(sample: bytes, encoding: str) -> str | None:
    """Return the complete lines of a sample as text, or None if their bytes are not valid in this encoding."""
    try:
        return sample.rpartition(b"\n")[0].decode(encoding)
    except UnicodeDecodeError:
        return None


def _japanese(sample: bytes) -> str | None:
    """Return the Japanese encoding of a text with kana, or None. The same bytes may also be unusual Korean."""
    for encoding in ("cp932", "euc_jp"):
        if (text := _decoded(sample, encoding)) is None:
            continue
        characters = [character for character in text if ord(character) > 127]
        if sum("\u3041" <= character <= "\u30ff" for character in characters) * 5 > len(characters):
            return encoding
    return None


def _is_almost_utf8(sample: bytes) -> bool:
    """Whether at least 9 of 10 non-ASCII characters are valid UTF-8, as in a damaged UTF-8 file."""
    text = sample.decode("utf-8", errors="replace")
    special = [character for character in text if ord(character) > 127]
    return special.count("�") * 10 <= len(special)


def _timed_cues(
    lines: Iterable[str], faults: Faults, *, is_vtt: bool, ends_in_line: bool
) -> Iterator[tuple[int, int, str]]:
    """Yield the cues of SubRip or WebVTT. A line with two times begins a cue.

    In WebVTT, a blank line ends a cue. In SubRip, the text may contain blank lines. The number of the next cue is
    removed from the end of the text. If the file ends in the middle of a line with times (`ends_in_line`), this line is
    not part of the last text.
    """
    span: tuple[int, int] | None = None
    text: list[str] = []
    line = ""
    is_shortened = False
    previous: tuple[int, list[str]] = (-(10**9), [])  # end and lines of the last cue

    def cue() -> Iterator[tuple[int, int, str]]:
        nonlocal previous, is_shortened
        if span is not None:
            cleaned = list(filter(None, map(plain_text, text)))
            new = _without_repeated(cleaned, previous, *span)
            previous = span[1], cleaned or previous[1]
            joined = " ".join(new)
            faults.shortened += is_shortened or len(joined) > MAX_CUE
            is_shortened = False
            yield (*span, joined[:MAX_CUE])

    for line in lines:
        match = _TIMING.match(line[:_MAX_TIMES]) if "->" in line else None
        if match is None and "-->" in line and (span is None or not is_vtt):
            faults.broken += 1
            if text and text[-1].strip().isdigit():
                text.pop()
            yield from cue()
            span = None
            text = []
        elif match is not None:
            is_number_there = bool(text and text[-1].strip().isdigit())  # in the line directly above the times
            while text and not text[-1].strip():
                text.pop()
            if not is_vtt and is_number_there:
                text.pop()
            yield from cue()
            text = []
            span = _span(match[1], match[2])
            faults.broken += span is None
        elif is_vtt and not line:  # captions of YouTube contain lines of one space
            yield from cue()
            span = None
            text = []
        elif span is not None:
            has_space = sum(map(len, text)) < 2 * MAX_CUE
            is_shortened |= len(line) == MAX_LINE or (not has_space and bool(line.strip()))
            if has_space:
                text.append(line)
    is_part = ends_in_line and _PART_OF_TIMING.fullmatch(line) is not None
    if not is_vtt and is_part and len(text) > 2 and text[-2].strip().isdigit() and not text[-3].strip():
        text.pop()
        faults.is_incomplete = True
    if not is_vtt and len(text) > 1 and text[-1].strip().isdigit() and not text[-2].strip():
        text.pop()  # the number of a cue that is not in the file
        faults.is_incomplete |= ends_in_line
    faults.is_incomplete |= ends_in_line and not text and (is_part or _TIMING.match(line[:_MAX_TIMES]) is not None)
    yield from cue()


def _without_repeated(lines: list[str], previous: tuple[int, list[str]], start_ms: int, end_ms: int) -> list[str]:
    """Remove leading lines that repeat the end of the previous cue, as roll-up captions do, and return the rest.

    If the whole cue repeats the previous cue, the cue is kept, because somebody may have said it twice. It is
    removed only if it is shown too briefly to be read.
    """
    previous_end_ms, shown = previous
    if start_ms - previous_end_ms > _ROLL_UP_MS or (shown == lines and end_ms - start_ms > _ROLL_UP_MS):
        return lines
    for count in range(min(len(lines), len(shown)), 0, -1):
        if shown[-count:] == lines[:count]:
            return lines[count:]
    return lines


def _ass_cues(lines: Iterable[str], faults: Faults) -> Iterator[tuple[int, int, str]]:
    """Yield the cues of ASS or SSA: the lines `Dialogue:` of the section [Events]."""
    fields = _ASS_FIELDS
    for line in lines:
        key, colon, value = line.partition(":")
        key = key.strip().lower()
        if key == "format" and "text" in value.lower() and "start" in value.lower():
            fields = [name.strip().lower() for name in value.split(",")]
        if key != "dialogue" or not colon:
            continue
        values = value.split(",", len(fields) - 1)
        event = dict(zip(fields, values, strict=False))
        span = _span(event.get("start", ""), event.get("end", "")) if len(values) == len(fields) else None
        if span is None:
            faults.broken += 1
            continue
        text = plain_ass_text(event.get("text", ""))
        faults.shortened += len(text) > MAX_CUE or len(line) == MAX_LINE
        yield (*span, text[:MAX_CUE])


def _span(start: str, end: str) -> tuple[int, int] | None:
    """Return two times in milliseconds, or None if one cannot be read or the end is before the start of the video."""
    start_ms, end_ms = _milliseconds(start), _milliseconds(end)
    if start_ms is None or end_ms is None or max(start_ms, end_ms) < 0:
        return None
    return max(start_ms, 0), max(end_ms, 0)


def _milliseconds(text: str) -> int | None:
    """Return a time such as 1:02:03,456 or 02:03.4 in milliseconds, or None for any other text.

    >>> _milliseconds("1:02:03,456"), _milliseconds("02:03.4"), _milliseconds("1:02:03:456"), _milliseconds("x")
    (3723456, 123400, 3723456, None)
    """
    text = re.sub(r"\s", "", text)
    match = re.fullmatch(r"(-?)(\d+(?::\d+)*)(?:[.,](\d+))?", text)
    if match is None:
        return None
    numbers = [int(number) for number in match[2].split(":")]
    fraction = match[3] or ""
    if len(numbers) == 4 and not fraction:
        fraction = f"{match[2].rpartition(':')[2]}"
        numbers.pop()
    if len(numbers) > 3 or (not fraction and len(numbers) == 1) or max(numbers) > 10**6:
        return None
    seconds = 0
    for number in numbers:
        seconds = 60 * seconds + number
    milliseconds = 1000 * seconds + int(f"{fraction:0<3}"[:3] or 0)
    return -milliseconds if match[1] else milliseconds


def with_end(cue: Cue, next_ms: int | None, faults: Faults) -> Cue:
    """Return the cue, with an estimated end if its end is not after its start. `faults` counts the estimates.

    The estimate leaves time to read the text. It is at most `next_ms`, the start of the next cue, if the next
    cue starts after this one.
    """
    if cue.end_ms > cue.start_ms:
        return cue
    faults.without_end += 1
    end_ms = cue.start_ms + min(max(_MIN_READING_MS, _READING_MS * len(cue.text)), _MAX_READING_MS)
    if next_ms is not None and next_ms > cue.start_ms:
        end_ms = min(end_ms, next_ms)
    return cue._replace(end_ms=end_ms)


def plain_ass_text(text: str) -> str:
    """Return the text of an ASS event without styles and drawings.

    >>> plain_ass_text(r"{\\an8}Hello,\\N{\\i1}you{\\i0} {\\p1}m 0 0 l 9 9{\\p0}")
    'Hello, you'
    """
    text = text[:MAX_LINE]
    text = _DRAWING.sub("", text) if "\\p" in text else text
    return plain_text(_ANY_OVERRIDE.sub("", text))


def plain_text(text: str) -> str:
    """Return a text without tags, control characters and repeated blanks, or "" if it has no letter or digit.

    It is truncated to `MAX_LINE` characters.

    >>> plain_text("<i>3 < 5</i> &amp; <font color='red'>7</font>{\\\\an8}")
    '3 < 5 & 7'
    >>> plain_text("<ruby>漢字<rt>かんじ</rt></ruby>を読む")
    '漢字を読む'
    """
    text = text[:MAX_LINE]
    if "{" in text:
        text = _OVERRIDE.sub("", text)
    if "\\" in text:
        text = text.replace("\\N", " ").replace("\\n", " ").replace("\\h", " ")
    if "<" in text:
        text = _BREAK_TAG.sub(" ", _RUBY.sub("", text))
        for _ in range(8):  # tags inside tags
            text, count = _TAG.subn("", text)
            if not count:
                break
        else:
            text = text.replace("<", " ")
    if "&" in text:
        text = html.unescape(text)
    if not text.isascii() or not text.isprintable():
        text = unicodedata.normalize("NFC", text)
        text = "".join(map(_visible, " " + text, text, text[1:] + " "))
    text = " ".join(text.split())
    return text if any(map(str.isalnum, text)) else ""


def _visible(before: str, character: str, after: str) -> str:
    """Return a character between two others, or what replaces it if it is invisible.

    Persian and Indic scripts need joiners in words, and after a vowel sign also at the end of a word.
    """
    category = unicodedata.category(character)[0]
    if character in "\u200c\u200d":
        kinds = unicodedata.category(before)[0] + unicodedata.category(after)[0]
        return character if kinds[0] == "M" or kinds in ("LL", "LM") else ""
    return character if category != "C" else " " if character in "\t\n\r" else ""
