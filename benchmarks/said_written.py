"""Search over what is seen, said and written, in made reels whose truth is known.

    python benchmarks/said_written.py FOLDER [--speech-model MODEL] [--reels N]

`--reels N` measures only N of the reels with English speech, which is faster.

The reels are the demo's pictures with speech from `espeak-ng` (which must be installed), subtitles of the same script,
and captions of several fonts, sizes, backgrounds and languages. Each shot has at most one of speech and a caption, so
that the truth of a query is one shot. Synthetic speech is clear and without music, and is easier than real speech.

Kinds of queries: *seen* describes a picture; *said* and *written* are some words of a sentence over pictures without
meaning; *mixed* describes a picture and gives words of a sentence that is also said, or written, over another picture.
A hit is correct if the middle of its moment is in the correct shot. IoU compares the moment with the span of the
sentence, or with the shot if the query is only about the picture. FOLDER keeps reels and libraries, so a second run is
fast; costs are those of the first. Processor time is reported, since elapsed time depends on what else runs.

The hardest case has a table of its own: the name of each picture is said once while another picture is shown.
"""

import argparse
import json
import math
import resource
import shutil
import subprocess
import sys
import tempfile
import wave
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import av
import numpy as np
from PIL import Image, ImageDraw, ImageFont

import untrimmed
from untrimmed import Query
from untrimmed.demo.camera import HEIGHT, WIDTH, Planes, to_planes
from untrimmed.demo.queries import QUERIES
from untrimmed.demo.reels import ENCODERS, FRAME_RATE, Reel, Shot, reel_frames
from untrimmed.demo.sources import FILLERS, SUBJECTS
from untrimmed.encoders.registry import load_encoder
from untrimmed.passages.passage import Passage
from untrimmed.passages.source import Media, PassageSource, ReadingReport, register_source
from untrimmed.passages.words import words_of
from untrimmed.search.query.answer import LockedEncoder, answer
from untrimmed.search.query.fusion import FusionSettings
from untrimmed.search.query.query import Cutoff, GroupBy
from untrimmed.search.store.passages import PassageTable

SEED = 0
NUM_REELS = 17  # and one for each other language
SUFFIX_OF_NAMES = ".names.json"
LONG_WORD = 4  # characters
LIBRARIES = {
    "pictures": "pictures",
    "screen": "pictures, screen text",
    "subtitles": "pictures, screen text, subtitles",
    "speech": "pictures, screen text, recognised speech",
}
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

# Sentences: somebody does something. The words of a query are those in capitals of both parts.
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
    """Return the scenes of each reel. Sentences of other languages are said in reels of their own."""
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
    """Write a video with captions and sound. It gets its name when it is complete."""
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
    """Write the spoken names of pictures and their times for each reel. Another picture is shown at these times."""
    shots = [(script.reel, *shot) for script in scripts for shot in script.shots]
    order = np.random.default_rng(SEED).permutation(len(shots))
    names: dict[str, list[tuple[str, float, float]]] = {script.reel: [] for script in scripts}
    for name, index in zip(QUERIES, order, strict=False):
        reel, picture, start_s, end_s = shots[index]
        if picture == name:
            reel, _, start_s, end_s = shots[order[-1]]
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


@dataclass(frozen=True)
class Cost:
    """What reading one source took: processor seconds, and bytes in the library."""

    cpu_s: float
    size: int


def cpu_s() -> float:
    """Return the processor time of this process and of the children that have ended."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def size_of(folder: Path) -> int:
    """Return the bytes of all files of a library, apart from its cache."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and "cache" not in file.parts)


def add_source(
    videos: list[Path], before: Path | None, folder: Path, sources: dict[str, dict[str, Any] | None]
) -> Cost:
    """Make a library from a copy of another with one more source, unless it exists. Return the cost of the source."""
    note = folder.with_suffix(".json")
    if note.exists():
        return Cost(**json.loads(note.read_text(encoding="utf-8")))
    if before is not None and not folder.exists():
        shutil.copytree(before, folder)
    start_s, start_size = cpu_s(), size_of(folder) if folder.exists() else 0
    report = untrimmed.open(folder).index(videos, encoder="builtin", sources=sources)
    for warning in [*report.failed, *report.warnings]:
        print(f"{warning.path}: {warning.reason}", file=sys.stderr)
    cost = Cost(cpu_s() - start_s, size_of(folder) - start_size)
    note.write_text(json.dumps(asdict(cost)), encoding="utf-8")
    return cost


@dataclass
class Searcher:
    """Searches one library with any settings of fusion."""

    library: Any
    encoder: LockedEncoder

    @classmethod
    def of(cls, folder: Path) -> "Searcher":
        """Open a library."""
        return cls(untrimmed.open(folder), LockedEncoder(load_encoder("builtin").encoder, nullcontext()))

    def ranks(
        self, query: MadeQuery, asked: Query, fusion: FusionSettings, group_by: GroupBy = "moment"
    ) -> tuple[int | None, float]:
        """Return the rank of the first correct moment among the first five, and the IoU of the first moment."""
        asked = replace(asked, group_by=group_by)
        hits = answer(asked, self.library.engine.view(), self.encoder, Cutoff(limit=5, moments=1), fusion=fusion)
        rank = next((rank for rank, hit in enumerate(hits, start=1) if is_correct(query, hit)), None)
        return rank, overlap(query, hits[0]) if hits else 0.0


def is_correct(query: MadeQuery, hit: Any) -> bool:
    """Whether the middle of a moment is in a correct shot."""
    middle_s = (hit.start_s + hit.end_s) / 2
    return any(hit.video.name == video and start_s <= middle_s < end_s for video, start_s, end_s in query.moments)


def overlap(query: MadeQuery, hit: Any) -> float:
    """Return the IoU of a moment and the nearest correct one."""
    best = 0.0
    for video, start_s, end_s in query.moments:
        if hit.video.name == video:
            first_s, last_s = query.span or (start_s, end_s)
            inside = max(0.0, min(last_s, hit.end_s) - max(first_s, hit.start_s))
            best = max(best, inside / (max(last_s, hit.end_s) - min(first_s, hit.start_s)))
    return best


def asked_as(query: MadeQuery, how: str) -> Query:
    """Return the query of a person: `plain` is one sentence; mixed queries name what is said or written."""
    if how == "picture only":
        return Query(query.seen)
    if how == "words only":
        return Query(said=query.said, written=query.written)
    if how == "one sentence":
        return Query(f"{query.seen}, {query.words}")
    if query.kind == "mixed":
        return Query(query.seen, said=query.said, written=query.written)
    return Query(query.seen or query.words)


Row = dict[str, float]


def evaluate(
    searcher: Searcher,
    queries: list[MadeQuery],
    how: str = "plain",
    fusion: FusionSettings | None = None,
    group_by: GroupBy = "moment",
) -> Row:
    """Return R@1, R@5 and the mean IoU in percent."""
    results = [searcher.ranks(query, asked_as(query, how), fusion or FusionSettings(), group_by) for query in queries]
    count = max(1, len(results))
    return {
        "queries": len(results),
        "R@1": 100 * sum(rank == 1 for rank, _ in results) / count,
        "R@5": 100 * sum(rank is not None for rank, _ in results) / count,
        "mean IoU": 100 * sum(iou for _, iou in results) / count,
    }


def edits(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the number of insertions, deletions and substitutions between two sequences."""
    row = list(range(len(second) + 1))
    for index, item in enumerate(first, start=1):
        above, row = row, [index]
        for place, other in enumerate(second, start=1):
            row.append(min(row[-1] + 1, above[place] + 1, above[place - 1] + (item != other)))
    return row[-1]


def passages_of(library: Any, source: str) -> dict[str, list[Any]]:
    """Return the passages of a source by the name of the video, in time order."""
    table = PassageTable(library.folder)
    return {
        Path(record.path).name: sorted(
            (
                match.sentence.passage
                for match in table.read([record.video_id])
                if match.sentence.passage.source == source
            ),
            key=lambda passage: passage.start_s,
        )
        for record in library.videos()
    }


def word_errors(library: Any, scripts: list[Script]) -> dict[str, float]:
    """Return the word error rate of speech recognition in percent, by language."""
    wrong: Counter[str] = Counter()
    total: Counter[str] = Counter()
    read = passages_of(library, "speech")
    for script in scripts:
        if script.said:
            language = script.said[0].language
            expected = [word.form for text in script.said for word in words_of(text.text)]
            actual = [word.form for passage in read[f"{script.reel}.mp4"] for word in words_of(passage.text)]
            wrong[language] += edits(expected, actual)
            total[language] += len(expected)
    return {language: 100 * wrong[language] / total[language] for language in sorted(total)}


def character_errors(library: Any, scripts: list[Script]) -> dict[str, float]:
    """Return the character error rate of captions in percent, by language, without case and blanks.

    A caption is compared with the most similar of the passages at the same time. One that was not found is all wrong.
    """
    wrong: Counter[str] = Counter()
    total: Counter[str] = Counter()
    read = passages_of(library, "screen")
    for script in scripts:
        for text in script.written:
            expected = "".join(text.text.lower().split())
            near = [p for p in read[f"{script.reel}.mp4"] if p.start_s < text.end_s and p.end_s > text.start_s]
            wrong[text.language] += min(
                [len(expected), *(edits(expected, "".join(passage.text.lower().split())) for passage in near)]
            )
            total[text.language] += len(expected)
    return {language: 100 * wrong[language] / total[language] for language in sorted(total)}


def compare_fusion(searcher: Searcher, queries: list[MadeQuery]) -> list[tuple[str, dict[str, float]]]:
    """Return R@1 of ways to combine pictures and passages, by kind, on the half of the queries that chose nothing."""
    halves = [[query for index, query in enumerate(queries) if index % 2 == half] for half in (0, 1)]

    # Reciprocal rank fusion ranks videos, not moments.
    def first(settings: FusionSettings, chosen: list[MadeQuery], how: str = "plain") -> float:
        return evaluate(searcher, chosen, how, settings, "video")["R@1"]

    def by_kind(settings: FusionSettings, half: list[MadeQuery]) -> dict[str, float]:
        kinds = {kind: [q for q in half if q.kind == kind] for kind in ("seen", "said", "written", "mixed")}
        rows = {kind: first(settings, chosen) for kind, chosen in kinds.items()}
        return rows | {"one sentence": first(settings, kinds["mixed"], "one sentence")}

    values = (6.0, 0.35), (10.0, 0.2), (10.0, 0.35), (10.0, 0.5), (12.0, 0.35)
    choices = [FusionSettings(weight=weight, least_strength=least) for weight, least in values]
    best = max(choices, key=lambda settings: sum(by_kind(settings, halves[0]).values()))
    return [
        ("reciprocal rank fusion", by_kind(FusionSettings(method="reciprocal rank"), halves[1])),
        ("calibrated scores (default)", by_kind(FusionSettings(), halves[1])),
        (
            f"calibrated, weight {best.weight:g} and least strength {best.least_strength:g} (best on the other half)",
            by_kind(best, halves[1]),
        ),
    ]


def kinds_table(searchers: dict[str, Searcher], queries: list[MadeQuery]) -> list[str]:
    """Return the lines of the table of R@1, R@5 and mean IoU by kind of query and library."""
    lines = [
        "| kind of query | sources in the library | queries | R@1 | R@5 | mean IoU |",
        "| --- | --- | --- | --- | --- | --- |",
    ]

    def add(kind: str, library: str, how: str = "plain", note: str = "") -> None:
        chosen = [query for query in queries if query.kind == kind]
        chosen = [query for query in chosen if not note.endswith("English") or query.language == "en"]
        row = evaluate(searchers[library], chosen, how)
        numbers = f"{row['queries']:.0f} | {row['R@1']:.1f} | {row['R@5']:.1f} | {row['mean IoU']:.1f}"
        lines.append(f"| {kind}{note} | {LIBRARIES[library]} | {numbers} |")

    for library in ("pictures", "subtitles", "speech"):
        add("seen", library)
    for library in ("subtitles", "speech"):
        add("said", library)
    add("said", "speech", note=" in English")
    for library in ("subtitles", "speech"):
        add("written", library)
    add("mixed", "pictures", "picture only", ", picture only")
    for library in ("subtitles", "speech"):
        add("mixed", library, "words only", ", words only")
        add("mixed", library, "one sentence", ", in one sentence")
        add("mixed", library)
    return lines


def names_table(without: Searcher, with_names: Searcher, queries: list[MadeQuery]) -> list[str]:
    """Return the lines of a table of R@1 in a library where the names of pictures are said elsewhere."""
    no_rule = FusionSettings(sure=math.inf)
    short = one_word_queries(queries)
    rows = [("seen, sentences", [query for query in queries if query.kind == "seen"])]
    rows += [(f"{kind}, one word", [q for q in short if q.kind == kind]) for kind in ("seen", "said", "written")]
    lines = [
        "| R@1 | queries | without these passages | with them | with them, but without the rule below |",
        "| --- | --- | --- | --- | --- |",
    ]
    for label, chosen in rows:
        figures = [
            evaluate(searcher, chosen, fusion=fusion)["R@1"]
            for searcher, fusion in ((without, None), (with_names, None), (with_names, no_rule))
        ]
        lines.append(f"| {label} | {len(chosen)} | {' | '.join(f'{figure:.1f}' for figure in figures)} |")
    return lines


def listed(rates: dict[str, float]) -> str:
    """Return error rates by language as text."""
    return ", ".join(f"{language} {rate:.1f} %" for language, rate in rates.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--speech-model", default="base")
    parser.add_argument("--reels", type=int, help="number of reels with English speech")
    options = parser.parse_args()
    scripts, queries = make_corpus(options.folder / "reels", options.reels)
    videos = [options.folder / "reels" / f"{script.reel}.mp4" for script in scripts]
    hours = sum(script.shots[-1][2] for script in scripts) / 3600
    folders = {name: options.folder / name for name in LIBRARIES}
    speech = {"model": options.speech_model}
    costs = {"pictures": add_source(videos, None, folders["pictures"], {"subtitle": None})}
    costs["screen"] = add_source(videos, folders["pictures"], folders["screen"], {"screen": {}})
    costs["subtitles"] = add_source(videos, folders["screen"], folders["subtitles"], {"subtitle": {}})
    costs["speech"] = add_source(videos, folders["screen"], folders["speech"], {"speech": speech})
    searchers = {name: Searcher.of(folder) for name, folder in folders.items()}
    say_names(options.folder / "reels", scripts)
    add_source(videos, folders["subtitles"], options.folder / "names", {"names": {}})
    lines = [
        "    python benchmarks/said_written.py FOLDER --speech-model MODEL"
        + (f" --reels {options.reels}" if options.reels else ""),
        "",
        f"{len(videos)} reels, {60 * hours:.0f} minutes, encoder `builtin`, "
        f"speech model `{Path(options.speech_model).name}`.",
        "",
        *kinds_table(searchers, queries),
        "",
        "| source | processor time per hour of video | size per hour of video |",
        "| --- | --- | --- |",
    ]
    for name, cost in costs.items():
        lines.append(f"| {name} | {cost.cpu_s / 60 / hours:.1f} min | {cost.size / 1e6 / hours:.2f} MB |")
    lines += [
        "",
        f"Word error rate of recognised speech: {listed(word_errors(searchers['speech'].library, scripts))}.",
        f"Character error rate of screen text: {listed(character_errors(searchers['screen'].library, scripts))}.",
        "",
        "| R@1 of videos, queries not used for choosing | seen | said | written | mixed | mixed, in one sentence |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, rows in compare_fusion(searchers["subtitles"], queries):
        lines.append(f"| {name} | {' | '.join(f'{value:.1f}' for value in rows.values())} |")
    lines += ["", *names_table(searchers["subtitles"], Searcher.of(options.folder / "names"), queries)]
    print("\n".join(lines))


if __name__ == "__main__":
    main()
