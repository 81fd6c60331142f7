"""Measure searches for what is seen, said and written, in the reels of `benchmarks/spoken_reels.py`.

    python benchmarks/said_written.py FOLDER [--speech-model MODEL] [--reels N]

`--reels N` measures only N of the reels with English speech, which is faster.

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
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.spoken_reels import MadeQuery, Script, make_corpus, one_word_queries, say_names

import untrimmed
from untrimmed import Query
from untrimmed.encoders.registry import load_encoder
from untrimmed.passages.words import words_of
from untrimmed.search.query.answer import LockedEncoder, answer
from untrimmed.search.query.fusion import FusionSettings
from untrimmed.search.query.query import Cutoff, GroupBy
from untrimmed.search.store.passages import PassageTable

LIBRARIES = {
    "pictures": "pictures",
    "screen": "pictures, screen text",
    "subtitles": "pictures, screen text, subtitles",
    "speech": "pictures, screen text, recognised speech",
}


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
