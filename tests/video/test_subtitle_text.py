"""Subtitles in all formats, encodings and with all kinds of faults give the right text and times."""

import io
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from untrimmed.video.subtitle_text import MAX_CUE, Cue, EncodingUnknownError, Faults, plain_text, read_cues

ENGLISH = [(1000, 2500, "Hello there, you."), (3000, 4000, "We made budget cuts."), (3_605_001, 3_606_999, "The end.")]
RUSSIAN = [(500, 1500, "Привет, как дела? Это пример."), (2000, 3250, "Мы сократили бюджет на образование.")]
GERMAN = [(0, 999, "Über die Brücke fährt ein großer Bär."), (1000, 2000, "Schöne Grüße aus Köln!")]
POLISH = [(100, 900, "Zażółć gęślą jaźń, proszę państwa."), (1000, 2000, "Dzień dobry, co słychać?")]
JAPANESE = [(100, 900, "今日は良い天気ですね。明日も晴れるでしょう。"), (1000, 2000, "予算を削減しました。")]
CHINESE = [(100, 900, "我们削减了预算，今天天气很好。"), (1000, 2000, "你好，请问你叫什么名字？")]
GREEK = [(100, 900, "Καλημέρα σας, τι κάνετε σήμερα;"), (1000, 2000, "Μειώσαμε τον προϋπολογισμό.")]


def clock(ms, mark=","):
    return f"{ms // 3_600_000:02d}:{ms // 60_000 % 60:02d}:{ms // 1000 % 60:02d}{mark}{ms % 1000:03d}"


def srt(cues, end="\n"):
    blocks = (f"{i}{end}{clock(s)} --> {clock(e)}{end}{text}{end}{end}" for i, (s, e, text) in enumerate(cues, 1))
    return "".join(blocks)


def vtt(cues):
    return "WEBVTT\n\n" + "\n".join(f"{clock(s, '.')} --> {clock(e, '.')} align:start\n{text}\n" for s, e, text in cues)


def ass(cues, format="Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text"):
    lines = (f"Dialogue: 0,{time(s)},{time(e)},Default,,0,0,0,,{text}" for s, e, text in cues)
    return f"[Script Info]\nScriptType: v4.00+\n\n[Events]\nFormat: {format}\n" + "\n".join(lines)


def time(ms):
    return f"{ms // 3_600_000}:{ms // 60_000 % 60:02d}:{ms // 1000 % 60:02d}.{ms % 1000 // 10:02d}"


def read(content, suffix=".srt", language=""):
    faults = Faults()
    data = content if isinstance(content, bytes) else content.encode()
    return [tuple(cue) for cue in read_cues(io.BytesIO(data), suffix, language, faults)], faults


ENCODED = [
    (ENGLISH, "utf-8"), (ENGLISH, "utf-8-sig"), (ENGLISH, "utf-16"), (ENGLISH, "utf-16-le"), (ENGLISH, "utf-16-be"),
    (ENGLISH, "utf-32"), (RUSSIAN, "utf-8"), (RUSSIAN, "cp1251"), (RUSSIAN, "koi8_r"), (RUSSIAN, "utf-16"),
    (GERMAN, "cp1252"), (GERMAN, "utf-8"), (POLISH, "cp1250"), (JAPANESE, "cp932"), (JAPANESE, "utf-8"),
    (CHINESE, "gb18030"), (CHINESE, "big5"), (GREEK, "cp1253"),
]  # fmt: skip


@pytest.mark.parametrize(("cues", "encoding"), ENCODED, ids=lambda value: value if isinstance(value, str) else "")
def test_encodings_are_detected(cues, encoding):
    if (cues, encoding) == (CHINESE, "big5"):
        cues = [(100, 900, "我們削減了預算，今天天氣很好。"), (1000, 2000, "你好，請問你叫什麼名字？")]
    assert read(srt(cues).encode(encoding))[0] == cues


@pytest.mark.parametrize(
    ("cues", "encoding", "language"),
    [
        *((RUSSIAN[:1], encoding, "ru") for encoding in ("cp1251", "koi8_r", "cp866")),
        *((POLISH[:1], encoding, "pol") for encoding in ("cp1250", "iso8859_2")),
        *((JAPANESE[:1], encoding, "ja") for encoding in ("cp932", "euc_jp")),
        (GREEK[:1], "cp1253", "el"),
        (CHINESE[:1], "gb18030", "zh"),
        ([(100, 900, "我們削減了預算，今天天氣很好。")], "big5", "zh"),
    ],
)
def test_the_language_in_a_name_helps_with_short_files(cues, encoding, language):
    assert read(srt(cues).encode(encoding), language=language)[0] == cues


def test_a_guess_from_a_few_bytes_is_reported_although_the_language_is_known():
    assert read(srt([(0, 900, "été")]).encode("cp1252"), language="fr")[1].is_encoding_uncertain
    assert read(srt([(0, 900, "ที่นี่")]).encode("cp874"), language="th")[1] == Faults(), "there is no other encoding"
    assert not read(srt(RUSSIAN).encode("cp1251"), language="ru")[1].is_encoding_uncertain


def test_joiners_stay_inside_words():
    assert plain_text("\u200cمی\u200cخواهم\u200c \u200d") == "می\u200cخواهم"
    assert plain_text("क्\u200dष") == "क्\u200dष"
    assert plain_text("a\u200b👩\u200d🚀") == "a👩🚀"


@pytest.mark.parametrize("suffix", [".srt", ".vtt", ".ass"])
def test_a_cue_that_is_too_long_is_shortened_and_counted(suffix):
    cues = [(0, 900, "word " * 1000), (1000, 1900, "short")]
    content = {".srt": srt, ".vtt": vtt, ".ass": ass}[suffix](cues)
    (first, second), faults = read(content, suffix)
    assert (len(first[2]), second[2], faults) == (MAX_CUE, "short", Faults(shortened=1))


def test_the_cue_in_whose_last_character_a_file_ends_is_left_out():
    first = "1\n00:00:00,000 --> 00:00:00,900\nMeet me\n\n2\n00:00:01,000 --> 00:00:02,000\n"
    assert read((first + "later…").encode()[:-1]) == ([(0, 900, "Meet me")], Faults(is_incomplete=True))
    found, faults = read((first + "café").encode("cp1252"))
    assert ([text for *_, text in found], faults.is_incomplete) == (["Meet me", "café"], False)


@pytest.mark.parametrize("cut", ["2", "2\n00:00", "2\n00:00:01,000", "2\n00:00:01,000 --", "2\n00:00:01,000 --> 00:0"])
def test_a_file_that_ends_in_the_middle_of_times_is_reported_and_the_rest_is_read(cut):
    cues, faults = read(srt([(0, 900, "Meet me")]) + cut)
    assert (cues, faults) == ([(0, 900, "Meet me")], Faults(is_incomplete=True))
    complete = [(0, 900, "Meet me at 10:30")]
    assert read(srt(complete).rstrip()) == (complete, Faults())
    assert read(srt([(0, 900, "Meet me at\n10:30")]).rstrip()) == (complete, Faults())


def test_numbers_that_are_text_stay_if_the_cues_have_no_numbers():
    lines = ["10", "9", "It was in\n1984", "Ignition"]
    times = (f"00:00:0{number},000 --> 00:00:0{number},900\n{text}\n" for number, text in enumerate(lines))
    assert [text for *_, text in read("\n".join(times))[0]] == ["10", "9", "It was in 1984", "Ignition"]


@pytest.mark.parametrize("text", ["東京に行きます", "はい", "そうですか。分かりました。"])
@pytest.mark.parametrize("encoding", ["cp932", "euc_jp"])
def test_short_japanese_text_is_not_read_as_korean(text, encoding):
    cues, faults = read(srt([(0, 900, text)]).encode(encoding))
    assert cues == [(0, 900, text)]
    assert faults.is_encoding_uncertain == (text == "はい"), "two characters are also a Korean word"


@pytest.mark.parametrize(("cues", "encoding"), [(RUSSIAN, "cp1251"), (GERMAN, "cp1252"), (JAPANESE, "cp932")])
def test_an_encoding_is_certain_if_no_other_is_likely(cues, encoding):
    assert not read(srt(cues).encode(encoding))[1].is_encoding_uncertain


@pytest.mark.parametrize(("text", "encoding"), [("Привет", "cp1251"), ("你好", "gb18030"), ("네", "cp949")])
def test_a_guess_is_reported(text, encoding):
    assert read(srt([(0, 900, text)]).encode(encoding))[1].is_encoding_uncertain
    assert not read(srt([(0, 900, text)]))[1].is_encoding_uncertain


LEGACY = {
    "de": (
        "cp1252",
        "Über die Brücke fährt ein großer Bus.|Schöne Grüße aus Köln!|Kannst du mir das Salz dafür geben?",
    ),
    "fr": ("cp1252", "Où étais-tu hier soir ?|Le garçon a mangé la crème brûlée.|Ça fait très longtemps à l'hôpital."),
    "es": (
        "cp1252",
        "¿Dónde estabas?|El niño comió toda la piña.|¡Qué día tan bonito!|Mañana iré al médico, mi corazón.",
    ),
    "pt": (
        "cp1252",
        "Onde você estava ontem à noite?|Não sei o que é isto.|A estação está fechada até amanhã, São João.",
    ),
    "sv": (
        "cp1252",
        "Var var du i går kväll?|Den lilla pojken åt frukost här.|Öppna fönstret!|Vi har väntat på tåget.",
    ),
    "pl": ("cp1250", "Gdzie byłeś wczoraj?|Jutro pójdziemy razem.|Nikt nie może się o tym dowiedzieć, proszę, żegnaj."),
    "cs": ("cp1250", "Kde jsi byl včera večer?|Zítra půjdeme do muzea.|Jaký je dnes krásný den!|Příliš žluťoučký kůň."),
    "hu": (
        "cp1250",
        "Először látom a tengert.|Kérek egy kávét és tortát.|Örülök, hogy jössz.|Őt szerettük, a nőt, az erdőt.",
    ),
    "tr": (
        "cp1254",
        "Dün akşam neredeydin?|Küçük çocuk bütün pastayı yedi.|Şimdi gitmem lazım, görüşürüz.|İyi değilim.",
    ),
    "lt": ("cp1257", "Kur buvai vakar?|Mažas berniukas suvalgė visą pyragą.|Rytoj eisime į muziejų.|Ačiū už pagalbą."),
    "ru": ("cp1251", "Маленький мальчик съел весь пирог.|Завтра мы вместе пойдём в музей.|Она забыла ключи на столе."),
    "el": ("cp1253", "Πού ήσουν χθες το βράδυ;|Δεν ξέρω τι συνέβη μετά τη γιορτή.|Τι όμορφη μέρα που είναι σήμερα!"),
    "he": (
        "cp1255",
        "איפה היית אתמול בערב?|אני לא יודע מה קרה אחרי המסיבה.|הילד הקטן אכל את כל העוגה.|איזה יום יפה היום!",
    ),
    "ar": ("cp1256", "أين كنت مساء أمس؟|لا أعرف ماذا حدث بعد الحفلة.|غدا سنذهب معا إلى المتحف.|يا له من يوم جميل!"),
    "de in DOS": ("cp850", "Über die Brücke fährt ein großer Bus.|Schöne Grüße aus Köln!|Kannst du das dafür geben?"),
    "ru in DOS": ("cp866", "Маленький мальчик съел весь пирог.|Завтра мы вместе пойдём в музей."),
    "cs in ISO": (
        "iso8859_2",
        "Kde jsi byl včera večer?|Zítra půjdeme do muzea.|Jaký krásný den!|Šťastnou cestu.",
    ),
}


@pytest.mark.parametrize("language", LEGACY)
def test_a_few_sentences_in_a_legacy_encoding_are_read_without_a_warning(language):
    encoding, sentences = LEGACY[language]
    expected = [(1000 * number, 1000 * number + 900, text) for number, text in enumerate(sentences.split("|"))]
    cues, faults = read(srt(expected).encode(encoding))
    assert cues == expected
    assert not faults.is_encoding_uncertain


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Senki sem tudhat erről", "cp1250"),  # "errõl" could be a word too
        ("xÞðñõ wÐýçø qÆÿãì", "cp1252"),  # no encoding gives words of one language
    ],
)
def test_a_text_that_fits_no_encoding_or_several_is_uncertain(text, encoding):
    assert read(srt([(0, 900, text)]).encode(encoding))[1].is_encoding_uncertain


FORMS = {
    "carriage returns and line feeds": (srt(ENGLISH, "\r\n"), ".srt"),
    "carriage returns": (srt(ENGLISH, "\r"), ".srt"),
    "no number": ("\n".join(f"{clock(s)} --> {clock(e)}\n{t}\n" for s, e, t in ENGLISH), ".srt"),
    "no blank lines": (srt(ENGLISH).replace("\n\n", "\n"), ".srt"),
    "three blank lines": (srt(ENGLISH).replace("\n\n", "\n\n\n\n"), ".srt"),
    "points and positions": (srt(ENGLISH).replace(",0", ".0").replace(" --> ", "  -->  "), ".srt"),
    "short arrows": (srt(ENGLISH).replace("-->", "->"), ".srt"),
    "tags": (srt([(s, e, f"<i>{t}</i>") for s, e, t in ENGLISH]), ".srt"),
    "colours": (srt([(s, e, f'<font color="#ff0000">{t}</FONT>') for s, e, t in ENGLISH]), ".srt"),
    "overrides": (srt([(s, e, f"{{\\an8}}{t}") for s, e, t in ENGLISH]), ".srt"),
    "tags in tags": (srt([(s, e, f"<<b>i>{t}<scr<b>ipt></i>") for s, e, t in ENGLISH]), ".srt"),
    "two lines": (srt([(s, e, t.replace(" ", "\n", 1)) for s, e, t in ENGLISH]), ".srt"),
    "no line end": (srt(ENGLISH).rstrip(), ".srt"),
    "WebVTT": (vtt(ENGLISH), ".vtt"),
    "WebVTT with notes and styles": (
        vtt(ENGLISH).replace("WEBVTT\n", "WEBVTT - title\n\nSTYLE\n::cue { color: red }\n\nNOTE\nby me\n"), ".vtt"
    ),
    "WebVTT with voices": (vtt([(s, e, f"<v.loud Bob>{t}</v>") for s, e, t in ENGLISH]), ".vtt"),
    "WebVTT with times of words": (vtt([(s, e, f"<00:00:01.250><c>{t}</c>") for s, e, t in ENGLISH]), ".vtt"),
    "a WebVTT file named .srt": (vtt(ENGLISH), ".srt"),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_forms_give_text_and_times(form):
    content, suffix = FORMS[form]
    cues, faults = read(content, suffix)
    assert cues == ENGLISH
    assert faults == Faults()


def test_ass_has_hundredths_of_a_second_and_styles():
    cues = [(1000, 2500, r"{\b1\pos(1,2)}Hello,{\b0}\Nyou"), (3000, 4010, "a, b, c"), (5000, 6000, r"{\p1}m 0 0{\p0}")]
    expected = [(1000, 2500, "Hello, you"), (3000, 4010, "a, b, c")]
    assert read(ass(cues), ".ass")[0] == expected
    old = "Marked, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text"
    assert read(ass(cues, old).replace("\nDialogue: 0,", "\nDialogue: Marked=0,"), ".ssa")[0] == expected
    assert read(ass(cues) + "\nComment: 0,0:00:01.00,0:00:02.00,Default,,0,0,0,,hidden", ".ass")[0] == expected


FAULTS = {
    "a broken time": (srt(ENGLISH).replace("00:00:03,000", "00:00:0x,000"), [ENGLISH[0], ENGLISH[2]], 1),
    "an end before the start": (srt([(2000, 1000, "back")]), [(2000, 3000, "back")], 0),
    "a time before the video": (srt(ENGLISH).replace("00:00:01,000", "-00:00:01,000"), [(0, 2500, ENGLISH[0][2])], 0),
    "an ASS line with too few fields": (ass(ENGLISH[:1]) + "\nDialogue: 0,0:00", [ENGLISH[0]], 1),
    "entities": (srt([(0, 999, "3 &lt; 5 &amp; <b>7</b> > 2")]), [(0, 999, "3 < 5 & 7 > 2")], 0),
    "signs without letters": (srt([(0, 999, "♪"), (1000, 2000, "♪ la ♪")]), [(1000, 2000, "♪ la ♪")], 0),
    "control characters": (srt([(0, 999, "a\x07b\u200fc\x00\td")]), [(0, 999, "abc d")], 0),
    "a script": (srt([(0, 999, "<script>alert(1)</script>x")]), [(0, 999, "alert(1)x")], 0),
    "an open tag": (srt([(0, 999, "<" * 50 + "a")]), [(0, 999, "<" * 50 + "a")], 0),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_affect_one_cue_only(fault):
    content, expected, broken = FAULTS[fault]
    cues, faults = read(content, ".ass" if content.startswith("[") else ".srt")
    assert cues[: len(expected)] == expected
    assert faults.broken == broken


@pytest.mark.parametrize(("suffix", "write"), [(".srt", srt), (".vtt", vtt), (".ass", ass)])
def test_a_cue_without_an_end_lasts_until_it_is_read_or_the_next_begins(suffix, write):
    long = "a long text " * 100
    starts = [(0, "one"), (500, "two"), (500, long), (60_000, long), (200_000, "last")]
    cues, faults = read(write([(start, 0, text) for start, text in starts]), suffix)
    spans = [(0, 500), (500, 1500), (500, 7500), (60_000, 67_000), (200_000, 201_000)]
    assert [cue[:2] for cue in cues] == spans
    assert faults == Faults(without_end=5)


def test_captions_that_roll_up_do_not_repeat_lines():
    rolled = [
        (0, 1000, "one"),
        (1000, 2000, "one\ntwo"),
        (2010, 3000, "two\nthree"),
        (3000, 3010, "two\nthree"),
        (5000, 6000, "three"),
    ]
    for cues in (read(vtt(rolled), ".vtt")[0], read(srt(rolled), ".srt")[0]):
        assert cues == [(0, 1000, "one"), (1000, 2000, "two"), (2010, 3000, "three"), (5000, 6000, "three")]


@pytest.mark.parametrize("content", [b"\0\1\2" * 900, bytes(range(256)) * 9])
def test_a_file_that_is_not_text_is_refused(content):
    with pytest.raises(EncodingUnknownError):
        read(content)


@pytest.mark.parametrize("language", ["", "ru", "fr"])
def test_a_damaged_byte_is_replaced_and_reported(language):
    content = srt(RUSSIAN).encode()
    cues, faults = read(content[:60] + b"\xff" + content[60:], language=language)
    assert cues[1:] == RUSSIAN[1:]
    assert [cue[:2] for cue in cues] == [cue[:2] for cue in RUSSIAN]
    assert faults.is_encoding_uncertain


@pytest.mark.parametrize("language", ["", "fr"])
def test_the_encoding_is_detected_if_a_long_file_begins_with_ascii(language):
    french = [
        (10**7 + 1000 * number, 10**7 + 1000 * number + 900, "Le café est à côté du théâtre.") for number in range(9)
    ]
    english = [(1000 * number, 1000 * number + 900, f"This is line {number}.") for number in range(6000)]
    cues, _ = read(srt([*english, *french]).encode("cp1252"), language=language)
    assert cues == [*english, *french]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_written_cues_are_read_again(data):
    text = st.from_regex(r"[A-Za-zÀ-ÿа-я][A-Za-zÀ-ÿа-я ,.!?'-]{0,40}[a-zа-я]", fullmatch=True)
    times = data.draw(st.lists(st.integers(0, 10**7), min_size=2, max_size=12, unique=True).map(sorted))
    spans = zip(times[::2], times[1::2], strict=False)
    cues = [(s, e, f"{' '.join(data.draw(text).split())} {number}") for number, (s, e) in enumerate(spans)]
    assert read(srt(cues))[0] == cues
    assert read(vtt(cues), ".vtt")[0] == cues
    rounded = [(s // 10 * 10, e // 10 * 10, t) for s, e, t in cues if s // 10 < e // 10]
    assert read(ass(rounded), ".ass")[0] == rounded


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=400), st.sampled_from([".srt", ".vtt", ".ass"]), st.integers(0, 2**32))
def test_damaged_files_give_valid_cues_or_are_refused(noise, suffix, seed):
    rng = random.Random(seed)
    content = bytearray({".srt": srt, ".vtt": vtt, ".ass": ass}[suffix](ENGLISH).encode())
    for byte in noise:
        place = rng.randrange(len(content))
        content[place : place + rng.randrange(3)] = bytes([byte])
    try:
        cues, _ = read(bytes(content), suffix)
    except EncodingUnknownError:
        return
    for start_ms, end_ms, text in cues:
        assert 0 <= start_ms < end_ms
        assert text == " ".join(text.split())
        assert any(map(str.isalnum, text))


@given(st.text(max_size=300))
def test_plain_text_is_on_one_line(text):
    plain = plain_text(text)
    assert plain == " ".join(plain.split())
    assert plain_text(f"<i>{plain}</i>") in ("", *[plain_text(plain)])


def test_cues_are_named_tuples():
    (cue,) = read_cues(io.BytesIO(srt([(0, 999, "a")]).encode()), ".srt", "", Faults())
    assert cue == Cue(0, 999, "a")


def test_a_line_of_spaces_does_not_end_a_cue():
    content = "WEBVTT\n\n00:00:00.160 --> 00:00:02.470\n \nhello<00:00:00.500><c> and</c>\n\n"
    assert read(content.encode(), ".vtt")[0] == [(160, 2470, "hello and")]
