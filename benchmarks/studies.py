"""Write the tables of the docs again from the results in benchmarks/studies, without data sets and without training.

    python benchmarks/studies.py

A block of a page begins with `<!-- studies: NAME... -->` and ends with `<!-- end of studies -->`. With one name, it has
the results of benchmarks/studies/NAME, with several names the table of all of them that have results.
"""

import re
from dataclasses import replace
from pathlib import Path

from untrimmed.files import write_whole
from untrimmed.reproduction.render import markdown
from untrimmed.study.orders import across_worlds, chosen, notes
from untrimmed.study.page import table
from untrimmed.study.stored import has_results, stored_results

REPOSITORY = Path(__file__).parent.parent
STUDIES = REPOSITORY / "benchmarks" / "studies"
PAGES = tuple(REPOSITORY / "docs" / name for name in ("benchmarks.md", "combinations.md"))
BLOCK = re.compile(r"(<!-- studies: ([\w/ ]+) -->\n).*?(<!-- end of studies -->)", re.DOTALL)


def generated(page: str, studies: Path = STUDIES) -> str:
    """Return a page with the text of its blocks from the stored results. Each note is printed once a page."""
    printed: set[str] = set()
    return BLOCK.sub(lambda block: f"{block[1]}\n{_text(studies, block[2].split(), printed)}\n{block[3]}", page)


def _text(studies: Path, names: list[str], printed: set[str]) -> str:
    stored = [stored_results(studies / name) for name in names if has_results(studies / name)]
    if len(names) > 1:
        text = "\n".join(across_worlds(stored)) or "Results of fewer than two worlds are stored.\n"
        return re.sub("^## ", "### ", text)
    if not stored:
        return "No results are stored.\n"
    (results,) = stored
    videos, captions, plan = results.setup.facts.videos, results.setup.facts.captions, results.plan
    counts = {len(reports) for reports in results.reports.values()}
    seeds = f"{min(counts)} to {max(counts)} seeds" if len(counts) > 1 else f"{max(counts)} seed{'s' * (counts != {1})}"
    about = (
        f"{videos['train']:,} training videos, {videos['val']:,} validation videos, and {videos['test']:,} test videos "
        f"with {captions['test']:,} captions. {plan.steps:,} steps of {results.setup.batch} videos, {seeds}: mean and "
        f"standard deviation on test videos. All models are {results.setup.dim} wide and read {results.setup.frames} "
        "frames."
    )
    grid = table(results)
    methods = replace(grid, lines=grid.lines[: len(grid.lines) - len(results.untrained)])
    sums = "; ".join(f"{name} {figures['SumR']:.1f}" for name, figures in reversed(list(results.untrained.items())))
    baselines = f"SumR [without training](data.md#baselines): {sums}.\n"
    new_notes = [note for note in notes(results) if note not in printed]
    printed.update(new_notes)
    return "\n".join([f"{about}\n", markdown(methods), baselines, *chosen(results), *new_notes])


def main() -> None:
    """Write all pages."""
    for path in PAGES:
        write_whole(path, generated(path.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
