"""Reels of the demo's pictures with speech and captions, and queries whose correct shots are known.

Speech comes from `espeak-ng`, which must be installed. Subtitles have the same text as the speech. Captions have
several fonts, sizes, backgrounds and languages. No shot has both speech and a caption. Synthetic speech is clear and
without music, and is easier than real speech.

Kinds of queries: *seen* describes a picture. *Said* and *written* are some words of a sentence over pictures that no
query describes. *Mixed* describes a picture, and gives words of a sentence that is said or written there, and also
over another picture.
"""

import json
import subprocess
import tempfile
import wave
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import av
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from untrimmed.demo.camera import HEIGHT, WIDTH, Planes, to_planes
from untrimmed.demo.queries import QUERIES
from untrimmed.demo.reels import ENCODERS, FRAME_RATE, Reel, Shot, reel_frames
from untrimmed.demo.sources import FILLERS, SUBJECTS
from untrimmed.passages.passage import Passage
from untrimmed.passages.source import Media, PassageSource, ReadingReport, register_source
from untrimmed.passages.words import words_of

SEED = 0
NUM_REELS = 17  # and one for each other language
SUFFIX_OF_NAMES = ".names.json"
LONG_WORD = 4  # characters
SOUND_HZ = 22_050
NUM_SEEN, NUM_SAID, NUM_WRITTEN, NUM_MIXED = 50, 50, 50, 50
SHOT_S = (4.0, 5.5)
NOISE_SHARE = 0.5  # of the reels have noise
NOISE_DB = -35.0
VOICES = ("en-us", "en-us+f3", "en-gb", "en-gb-scotland+m3", "en-gb+f4")
VOICE_OF = {"de": "de", "fr": "fr"}
FONTS = (
    "DejaVuSans.ttf",
    "DejaVuSerif-Bold.ttf",
    "DejaVuSansMono.ttf",
    "LiberationSans-Regular.ttf",
    "LiberationSerif-Italic.ttf",
    "FreeSansBold.ttf",
)
CHINESE_FONTS = ("wqy-microhei.ttc", "NotoSansCJK-Regular.ttc")
FILLER_NAMES = [footage.name for footage in FILLERS if footage.name not in ("handwriting", "snake")]

# Sentences: somebody does something. A query consists of the capitalised words of both parts.
AGENTS = """
the LIGHTHOUSE KEEPER|my GRANDMOTHER|the YOUNG VIOLINIST|a TIRED BAKER|the FINANCE MINISTER|our GEOGRAPHY TEACHER|
the OLD FISHERMAN|a FAMOUS ARCHITECT|the NIGHT NURSE|two BROTHERS|the TRAIN DRIVER|a POLISH CHEMIST|the TENNIS COACH|
the VILLAGE DOCTOR|an AFRICAN QUEEN|the BUS COMPANY|a GROUP of STUDENTS|the RIVER POLICE|the CIRCUS DIRECTOR|
a YOUNG FARMER|the MUSEUM GUARD|the CHESS CHAMPION|a RETIRED PILOT|the TOWN COUNCIL|the JAZZ SINGER
"""
ACTIONS = """
COUNTED eleven SAILING BOATS|baked LEMON CAKES for the fair|discussed BUDGET CUTS on Thursday|repaired a BROKEN PIANO|
planted APPLE TREES behind the SCHOOL|wrote a LETTER to the PRESIDENT|lost the KEYS of the CASTLE|
painted the KITCHEN DOOR GREEN|sold HONEY at the MARKET|waited for the MORNING FERRY|climbed the HIGHEST MOUNTAIN|
opened a BOOKSHOP near the STATION|found a GOLD COIN in the GARDEN|taught ITALIAN to CHILDREN|
complained about the NOISY AIRPORT|bought a WOODEN TABLE|invited the NEIGHBOURS to DINNER|photographed a RARE BUTTERFLY|
closed the SWIMMING POOL|won a PRIZE for CHEESE|crossed the FROZEN LAKE|measured the DEPTH of the HARBOUR|
told a STORY about a DRAGON|carried WATER to the CAMP|explained the RULES of the GAME
"""
GERMAN = """
der BÜRGERMEISTER eröffnet eine neue BRÜCKE|die LEHRERIN sammelt alte BRIEFMARKEN|der BÄCKER verkauft frisches BROT|
meine SCHWESTER lernt heute FRANZÖSISCH|der ZUG nach MÜNCHEN hat VERSPÄTUNG|die KINDER bauen einen SCHNEEMANN|
der GÄRTNER gießt die roten ROSEN|das THEATER zeigt ein STÜCK über KÖNIGE|der ARZT fährt mit dem FAHRRAD|
die FABRIK baut kleine MOTOREN|der HUND schläft unter dem TISCH|die NACHBARN feiern ein großes FEST
"""
FRENCH = """
le BOULANGER ferme sa BOUTIQUE à MIDI|la RIVIÈRE traverse le vieux VILLAGE|le MÉDECIN achète une VOITURE bleue|
les ENFANTS chantent une CHANSON d'HIVER|le FACTEUR apporte une LETTRE|la REINE visite un HÔPITAL|
le PÊCHEUR répare son FILET|une ÉTUDIANTE cherche un APPARTEMENT
"""
SPANISH = """
el PANADERO abre la TIENDA por la MAÑANA|la NIÑA come una NARANJA dulce|el MÚSICO toca la GUITARRA en la PLAZA|
los PESCADORES vuelven del MAR
"""
CHINESE = """
老师 在 图书馆 读 报纸|火车 明天 早上 到达 北京|孩子们 在 公园 放 风筝|市场 今天 卖 新鲜 苹果
"""
MORE_SEEN = {
    "cat": ["a striped cat looks straight at you", "whiskers of a cat"],
    "coffee": ["espresso in a cup with a spoon", "a cup of coffee"],
    "rocket": ["a rocket before its launch", "a space rocket on its pad"],
    "motorcycle": ["a red motorcycle", "a motorbike between shelves"],
    "astronaut": ["a woman in a space suit", "an astronaut smiles"],
    "cameraman": ["a photographer with a tripod"],
    "horse": ["a black horse on white"],
    "coins": ["old coins in rows", "many ancient coins"],
    "page": ["a printed page"],
    "bricks": ["a brick wall"],
    "moon": ["the surface of the moon", "craters"],
    "galaxies": ["stars and galaxies", "deep space"],
    "pagoda": ["a pagoda in China", "a temple above the water"],
    "flower": ["an orange flower", "a blossom"],
    "taxi": ["a taxi in traffic"],
    "cyclist": ["a cyclist with a helmet"],
    "street": ["cars on a city street"],
    "bicycle": ["an old bicycle at a wall"],
    "rabbit": ["a fat rabbit in a meadow", "a cartoon rabbit"],
    "bow tie": ["a man with a bow tie in a car"],
}


@dataclass(frozen=True)
class Sentence:
    """A sentence and the words of a query for it."""

    text: str
    words: str
    language: str

    @classmethod
    def of(cls, marked: str, language: str) -> "Sentence":
        """Parse a sentence in which the words of the query are in capitals (or, in Chinese, separate)."""
        marked = " ".join(marked.split())
        if language == "zh":
            return cls(marked.replace(" ", ""), marked.replace(" ", "")[-4:], language)
        words = " ".join(word for word in marked.split() if word.isupper() or word.replace("d'", "").isupper())
        text = marked.lower()
        return cls(text[0].upper() + text[1:], words.lower(), language)


@dataclass(frozen=True)
class Scene:
    """One shot: its picture, and what is said or written in it."""

    picture: str
    said: Sentence | None = None
    written: Sentence | None = None


@dataclass(frozen=True)
class TimedText:
    """A sentence with its span in a reel."""

    text: str
    start_s: float
    end_s: float
    language: str


@dataclass(frozen=True)
class MadeQuery:
    """A query and its correct moments: (reel, start, end)."""

    kind: str
    seen: str
    said: str
    written: str
    moments: list[tuple[str, float, float]]  # correct shots
    span: tuple[float, float] | None = None  # of the sentence
    language: str = ""  # of the sentence

    @property
    def words(self) -> str:
        """The words that are said or written."""
        return self.said or self.written


@dataclass
class Script:
    """What is said, written and shown in one reel, with times."""

    reel: str
    said: list[TimedText] = field(default_factory=list)
    written: list[TimedText] = field(default_factory=list)
    shots: list[tuple[str, float, float]] = field(default_factory=list)  # picture, start, end


def sentences(rng: np.random.Generator) -> tuple[list[Sentence], list[Sentence], list[Sentence]]:
    """Return sentences to say, to write, and for mixed queries, all different."""
    agents = [part.strip() for part in AGENTS.replace("\n", "").split("|")]
    actions = [part.strip() for part in ACTIONS.replace("\n", "").split("|")]
    pairs = [
        (agent, actions[(index + shift) % len(actions)]) for shift in range(5) for index, agent in enumerate(agents)
    ]
    english = [Sentence.of(f"{agent} {action}", "en") for agent, action in pairs]
    english = [english[i] for i in rng.permutation(len(english))]
    others = {
        language: [Sentence.of(part, language) for part in texts.replace("\n", "").split("|")]
        for language, texts in (("de", GERMAN), ("fr", FRENCH), ("es", SPANISH), ("zh", CHINESE))
    }
    said = others["de"][:5] + others["fr"][:4] + english[: NUM_SAID - 9]
    english = english[NUM_SAID - 9 :]
    written = others["de"][5:] + others["fr"][4:] + others["es"] + others["zh"]
    num_english = NUM_WRITTEN - len(written)
    return said, written + english[:num_english], english[num_english : num_english + NUM_MIXED // 2]


def plan(rng: np.random.Generator, num_reels: int = NUM_REELS) -> list[list[Scene]]:
    """Return the scenes of each reel. Speech in other languages has its own reels."""
    said, written, mixed = sentences(rng)
    subjects = [footage.name for footage in SUBJECTS]
    scenes = [Scene(name) for name in subjects]
    scenes += [Scene(str(rng.choice(FILLER_NAMES)), said=sentence) for sentence in said if sentence.language == "en"]
    scenes += [Scene(str(rng.choice(FILLER_NAMES)), written=sentence) for sentence in written]
    for index, sentence in enumerate(mixed):
        for copy in range(2):
            picture = subjects[(2 * index + copy) % len(subjects)]
            kind = "said" if index % 2 else "written"
            scenes.append(Scene(picture, **{kind: sentence}))
    scenes = [scenes[i] for i in rng.permutation(len(scenes))]
    reels = [scenes[index::num_reels] for index in range(num_reels)]
    for language in ("de", "fr"):
        reels.append([Scene(str(rng.choice(FILLER_NAMES)), said=s) for s in said if s.language == language])
    return reels


@cache
def speak(text: str, voice: str, speed: int) -> np.ndarray:
    """Return speech in [-1, 1] at `SOUND_HZ`."""
    with tempfile.NamedTemporaryFile(suffix=".wav") as file:
        subprocess.run(["espeak-ng", "-v", voice, "-s", str(speed), "-w", file.name, text], check=True)
        with wave.open(file.name) as sound:
            assert sound.getframerate() == SOUND_HZ
            samples = np.frombuffer(sound.readframes(sound.getnframes()), np.int16).astype(np.float32) / 32768
    loud = np.flatnonzero(np.abs(samples) > 0.01)
    return samples[loud[0] : loud[-1] + 1]


@cache
def font_file(names: tuple[str, ...], index: int) -> str | None:
    """Return a font of the system or of matplotlib; the next in the list if it is not installed."""
    for name in names[index:] + names[:index]:
        try:
            return ImageFont.truetype(name, 12).path
        except OSError:
            pass
        import matplotlib

        path = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name
        if path.is_file():
            return str(path)
    return None


def caption(sentence: Sentence, rng: np.random.Generator) -> tuple[Image.Image, Image.Image] | None:
    """Return a picture of a caption in the size of the frame, and its mask; None if no font has its letters."""
    names = CHINESE_FONTS if sentence.language == "zh" else FONTS
    path = font_file(names, int(rng.integers(len(names))))
    if path is None:
        return None
    size = int(rng.integers(18, 31))
    font = ImageFont.truetype(path, size)
    lines = [sentence.text]
    if font.getlength(sentence.text) > WIDTH - 40:
        words = sentence.text.split()
        lines = [" ".join(words[: len(words) // 2]), " ".join(words[len(words) // 2 :])]
    while max(map(font.getlength, lines)) > WIDTH - 20:
        font = ImageFont.truetype(path, font.size - 1)
    picture, mask = Image.new("RGB", (WIDTH, HEIGHT)), Image.new("L", (WIDTH, HEIGHT))
    text = "\n".join(lines)
    left, top, right, bottom = ImageDraw.Draw(picture).multiline_textbbox((0, 0), text, font=font, align="center")
    x = (WIDTH - right - left) / 2
    y = {0: 12, 1: HEIGHT / 2 - bottom / 2, 2: HEIGHT - bottom - 16}[int(rng.choice([0, 1, 2, 2]))]
    colour = [(255, 255, 255), (255, 230, 60), (120, 255, 255)][int(rng.integers(3))]
    if rng.random() < 0.5:  # a box
        box = (x + left - 8, y + top - 5, x + right + 8, y + bottom + 5)
        fill = [(0, 0, 0), (20, 30, 90), (110, 10, 20)][int(rng.integers(3))]
        ImageDraw.Draw(picture).rectangle(box, fill=fill)
        ImageDraw.Draw(mask).rectangle(box, fill=255)
        options: dict[str, Any] = {}
    else:  # an outline
        options = {"stroke_width": 2}
        ImageDraw.Draw(mask).multiline_text((x, y), text, font=font, align="center", fill=255, **options)
        options["stroke_fill"] = (0, 0, 0)
    ImageDraw.Draw(picture).multiline_text((x, y), text, font=font, align="center", fill=colour, **options)
    return picture, mask


def make_reel(name: str, scenes: list[Scene], number: int, folder: Path) -> Script:
    """Write one reel and its subtitles, unless it exists, and return its script."""
    rng = np.random.default_rng((SEED, number))
    by_name = {footage.name: footage for footage in SUBJECTS + FILLERS}
    voice = VOICES[int(rng.integers(len(VOICES)))]
    speed = int(rng.integers(140, 176))
    script = Script(name)
    shots: list[Shot] = []
    captions: list[tuple[float, float, tuple[Image.Image, Image.Image]]] = []
    sounds: list[tuple[float, np.ndarray]] = []
    start_s = 0.0
    for scene in scenes:
        length_s = float(rng.uniform(*SHOT_S))
        if scene.said is not None:
            spoken = speak(scene.said.text, VOICE_OF.get(scene.said.language, voice), speed)
            length_s = max(length_s, len(spoken) / SOUND_HZ + 1.2)
            sounds.append((start_s + 0.6, spoken))
            script.said.append(
                TimedText(scene.said.text, start_s + 0.6, start_s + 0.6 + len(spoken) / SOUND_HZ, scene.said.language)
            )
        num_frames = round(length_s * FRAME_RATE)
        end_s = start_s + num_frames / FRAME_RATE
        if scene.written is not None:
            drawn = caption(scene.written, rng)
            if drawn is not None:
                first_s, last_s = start_s + 0.4, end_s - 0.4
                captions.append((first_s, last_s, drawn))
                script.written.append(TimedText(scene.written.text, first_s, last_s, scene.written.language))
        shots.append(Shot(by_name[scene.picture], round(start_s * FRAME_RATE), num_frames, 0, None))
        script.shots.append((scene.picture, start_s, end_s))
        start_s = end_s
    path = folder / f"{name}.mp4"
    if not path.exists():
        noise = NOISE_DB if rng.random() < NOISE_SHARE else -70.0
        sound = 10 ** (noise / 20) * rng.standard_normal(round(start_s * SOUND_HZ)).astype(np.float32)
        for time_s, spoken in sounds:
            first = round(time_s * SOUND_HZ)
            sound[first : first + len(spoken)] += 0.8 * spoken[: len(sound) - first]
        write_video(path, Reel(name, tuple(shots), (SEED, number)), captions, np.clip(sound, -1, 1))
        (folder / f"{name}.srt").write_text(subtitles(script.said), encoding="utf-8")
    return script


def subtitles(said: list[TimedText]) -> str:
    """Return SubRip subtitles."""

    def stamp(time_s: float) -> str:
        ms = round(1000 * time_s)
        return f"{ms // 3_600_000:02}:{ms // 60_000 % 60:02}:{ms // 1000 % 60:02},{ms % 1000:03}"

    return "".join(
        f"{number}\n{stamp(text.start_s)} --> {stamp(text.end_s)}\n{text.text}.\n\n"
        for number, text in enumerate(said, 1)
    )


def write_video(path: Path, reel: Reel, captions: list[Any], sound: np.ndarray) -> None:
    """Write a video with captions and sound. The file is renamed to `path` when it is complete."""
    codec = next(name for name in ENCODERS if name in av.codecs_available)
    partial = path.with_suffix(".partial")
    with av.open(str(partial), "w", format="mp4") as out:
        track: Any = out.add_stream(codec, rate=FRAME_RATE, options=ENCODERS[codec])
        track.width, track.height, track.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        track.codec_context.time_base = Fraction(1, FRAME_RATE)
        voice: Any = out.add_stream("aac", rate=SOUND_HZ, layout="mono")
        overlays = [(start_s, end_s, to_planes(picture), mask) for start_s, end_s, (picture, mask) in captions]
        for index, planes in enumerate(reel_frames(reel)):
            time_s = index / FRAME_RATE
            for start_s, end_s, overlay, mask in overlays:
                if start_s <= time_s < end_s:
                    planes = with_caption(planes, overlay, mask)
            pixels = np.frombuffer(b"".join(plane.tobytes() for plane in planes), np.uint8)
            frame = av.VideoFrame.from_ndarray(pixels.reshape(HEIGHT * 3 // 2, WIDTH), format="yuv420p")
            frame.pts = index
            out.mux(track.encode(frame))
            first, stop = (round(number / FRAME_RATE * SOUND_HZ) for number in (index, index + 1))
            samples = av.AudioFrame.from_ndarray(sound[None, first:stop], format="fltp", layout="mono")
            samples.sample_rate, samples.time_base, samples.pts = SOUND_HZ, Fraction(1, SOUND_HZ), first
            out.mux(voice.encode(samples))
        out.mux(track.encode())
        out.mux(voice.encode())
    partial.rename(path)


def with_caption(planes: Planes, overlay: Planes, mask: Image.Image) -> Planes:
    """Return a frame with a caption on it."""
    small = mask.resize(planes[1].size)
    luma, blue, red = (
        Image.composite(drawn.resize(plane.size), plane, mask if plane.size == mask.size else small)
        for plane, drawn in zip(planes, overlay, strict=True)
    )
    return luma, blue, red


def queries_of(scripts: list[Script], reels: list[list[Scene]]) -> list[MadeQuery]:
    """Return the queries of all kinds whose pictures and sentences are in the reels."""
    places = [
        (script, scene, (f"{script.reel}.mp4", start_s, end_s))
        for script, scenes in zip(scripts, reels, strict=True)
        for scene, (_, start_s, end_s) in zip(scenes, script.shots, strict=True)
    ]
    of_picture: dict[str, list[tuple[str, float, float]]] = {}
    for _, scene, place in places:
        of_picture.setdefault(scene.picture, []).append(place)
    seen = [*QUERIES.items(), *((name, text) for name, texts in MORE_SEEN.items() for text in texts)]
    queries = [
        MadeQuery("seen", text, "", "", of_picture[name]) for name, text in seen[:NUM_SEEN] if name in of_picture
    ]
    for script, scene, place in places:
        is_mixed = scene.picture in QUERIES
        for kind, sentence, texts in (("said", scene.said, script.said), ("written", scene.written, script.written)):
            text = next(
                (t for t in texts if sentence and t.text == sentence.text and place[1] <= t.start_s < place[2]), None
            )
            if sentence is None or text is None:
                continue
            words = {"said": "", "written": "", kind: sentence.words}
            seen_text = QUERIES[scene.picture] if is_mixed else ""
            span = text.start_s, text.end_s
            kind = "mixed" if is_mixed else kind
            queries.append(MadeQuery(kind, seen_text, **words, moments=[place], span=span, language=text.language))
    return queries


@register_source("names")
@dataclass(frozen=True)
class Names(PassageSource):
    """The spoken names of pictures in a video, from the file with the suffix `SUFFIX_OF_NAMES` beside it."""

    mode = "said"
    identity = "names-1"

    def read(self, media: Media, report: ReadingReport) -> Iterator[Passage]:
        """Yield a sentence for each name."""
        for name, start_s, end_s in json.loads(media.path.with_suffix(SUFFIX_OF_NAMES).read_text(encoding="utf-8")):
            yield Passage(f"My uncle told us about the {name} last summer.", start_s, end_s, source=self.name)


def say_names(folder: Path, scripts: list[Script]) -> None:
    """Write the spoken names of pictures and their times for each reel.

    Each name is said in a different shot, which shows another picture. If there are too few shots, the last names are
    not said.
    """
    shots = [(script.reel, *shot) for script in scripts for shot in script.shots]
    unused = [shots[index] for index in np.random.default_rng(SEED).permutation(len(shots))]
    names: dict[str, list[tuple[str, float, float]]] = {script.reel: [] for script in scripts}
    for name in QUERIES:
        shot = next((shot for shot in unused if shot[1] != name), None)
        if shot is None:
            continue
        unused.remove(shot)
        reel, _, start_s, end_s = shot
        names[reel].append((name, start_s + 0.6, end_s - 0.6))
    for reel, said in names.items():
        (folder / f"{reel}{SUFFIX_OF_NAMES}").write_text(json.dumps(said), encoding="utf-8")


def one_word_queries(queries: list[MadeQuery]) -> list[MadeQuery]:
    """Return the names of the pictures as queries, and all long words that only one sentence contains."""
    names = {text: name for name, text in QUERIES.items()}
    sentences = [(query, {word.form for word in words_of(query.words)}) for query in queries]
    counts = Counter(form for _, forms in sentences for form in forms)
    return [replace(query, seen=names[query.seen]) for query in queries if query.seen in names and not query.words] + [
        replace(query, **{query.kind: form})
        for query, forms in sentences
        for form in sorted(forms)
        if query.kind in ("said", "written") and counts[form] == 1 and len(form) >= LONG_WORD
    ]


def make_corpus(folder: Path, limit: int | None) -> tuple[list[Script], list[MadeQuery]]:
    """Write the reels that are missing, and return the scripts and the queries of the first of them."""
    folder.mkdir(parents=True, exist_ok=True)
    reels = dict(enumerate(plan(np.random.default_rng(SEED))))
    used = {index: scenes for index, scenes in reels.items() if limit is None or index < limit or index >= NUM_REELS}
    scripts = [make_reel(f"made_{index:02d}", scenes, index, folder) for index, scenes in used.items()]
    return scripts, queries_of(scripts, list(used.values()))
