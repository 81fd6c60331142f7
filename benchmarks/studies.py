"""Write the tables of the docs again from the results in benchmarks/studies, without data sets and without training.

    python benchmarks/studies.py            # write the pages
    python benchmarks/studies.py NAME...    # print the tables of benchmarks/studies/NAME

A block of a page begins with `<!-- studies: NAME... -->` and ends with `<!-- end of studies -->`. With one name, it has
the results of benchmarks/studies/NAME, with several names the table of all of them that have results. If a search for
settings is stored, the block has only its results. The block after `<!-- prototypes -->` compares the results of
benchmarks/studies/prototypes with the paper's.
"""

import re
import sys
from dataclasses import replace
from pathlib import Path

from untrimmed.files import write_whole
from untrimmed.reproduction.papers import paper_named
from untrimmed.reproduction.render import Grid, markdown
from untrimmed.reproduction.tables import TrainedTable
from untrimmed.study.orders import across_worlds, chosen, papers_order, published_sum_r, search_results, sum_r_of
from untrimmed.study.page import table
from untrimmed.study.stored import has_results, stored_results

REPOSITORY = Path(__file__).parent.parent
STUDIES = REPOSITORY / "benchmarks" / "studies"
PAGES = tuple(REPOSITORY / "docs" / name for name in ("benchmarks.md", "combinations.md"))
BLOCK = re.compile(r"(<!-- studies: ([\w/ ]+) -->\n).*?(<!-- end of studies -->)", re.DOTALL)
PROTOTYPES = re.compile(r"(<!-- prototypes -->\n).*?(<!-- end of studies -->)", re.DOTALL)
DROPOUT = "model.dropout=0.1,model.input_dropout=0.1"
LOSSES = ("word_reconstruction", "frame_reconstruction", "attention_guidance", "orthogonal")


def generated(page: str, studies: Path = STUDIES) -> str:
    """Return a page with the text of its blocks from the stored results."""
    page = PROTOTYPES.sub(lambda block: f"{block[1]}\n{_prototypes(studies / 'prototypes' / 'tvr')}\n{block[2]}", page)
    return BLOCK.sub(lambda block: f"{block[1]}\n{_text(studies, block[2].split())}\n{block[3]}", page)


def _text(studies: Path, names: list[str]) -> str:
    stored = [stored_results(studies / name) for name in names if has_results(studies / name)]
    if len(names) > 1:
        text = "\n".join(across_worlds(stored)) or "There are no stored results of a second world to compare with.\n"
        return re.sub("^## ", "### ", text)
    if not stored:
        return "No results are stored.\n"
    (results,) = stored
    if found := list(search_results(results)):
        return "\n".join(found)
    videos, captions, plan = results.setup.facts.videos, results.setup.facts.captions, results.plan
    counts = {len(reports) for reports in results.reports.values()}
    seeds = f"{min(counts)} to {max(counts)}" if len(counts) > 1 else f"{max(counts)}"
    kind = "results of one seed" if counts == {1} else f"mean and standard deviation of {seeds} seeds"
    about = (
        f"{videos['train']:,} training videos, {videos['val']:,} validation videos, and {videos['test']:,} test videos "
        f"with {captions['test']:,} captions. All models have width {results.setup.dim}, read "
        f"{results.setup.frames} frames per video, and were trained for {plan.steps:,} steps with "
        f"{results.setup.batch} videos per batch. The table shows the {kind} on test videos."
    )
    grid = table(results)
    methods = replace(grid, lines=grid.lines[: len(grid.lines) - len(results.untrained)])
    sums = "; ".join(f"{name} {figures['SumR']:.1f}" for name, figures in reversed(list(results.untrained.items())))
    baselines = f"SumR [without training](data.md#baselines): {sums}.\n"
    orders = papers_order(sum_r_of(results), published_sum_r(results))
    return "\n".join([f"{about}\n", markdown(methods), baselines, *chosen(results), *orders])


def _prototypes(study: Path) -> str:
    """Return the table of ProtoPRVR's losses, prototypes and iterations."""
    here = sum_r_of(stored_results(study))

    def proto(iterations: int = 1, num_losses: int = len(LOSSES), more: str = "") -> str:
        off = "".join(f",weights.{name}=0" for name in LOSSES[num_losses:])
        return f"proto,model.iterations={iterations},{DROPOUT}{more}{off}"

    losses = (
        "without auxiliary losses, then adding word reconstruction, frame reconstruction, attention guidance and "
        "orthogonality one by one (Table 4)"
    )
    prototypes = [proto(more=f",model.num_prototypes={count}") for count in (10, 20, 60)]
    rows = {
        losses: ("table4", [proto(num_losses=count) for count in range(len(LOSSES) + 1)]),
        "10, 20, 30, 60 prototypes (Table 5)": ("table5", [*prototypes[:2], proto(), prototypes[2]]),
        "MS-SL, MS-SL with prototypes (six iterations)": (None, [f"ms_sl,{DROPOUT}", f"ms_sl+prototypes,{DROPOUT}"]),
        "1, 3, 6 iterations, without auxiliary losses": (None, [proto(iterations, 0) for iterations in (1, 3, 6)]),
    }
    lines = tuple(
        (label, _published(table) if table else "", ", ".join(f"{here[name][0]:.1f}" for name in names))
        for label, (table, names) in rows.items()
    )
    header = ("", "in the paper (TVR, features of CLIP-L/14)", "here (standard world, 750 steps, one seed)")
    return markdown(Grid("", header, lines, num_labels=3))


def _published(table: str) -> str:
    """Return the SumR of each row of a table in ProtoPRVR's paper."""
    tables = (entry for entry in paper_named("proto").entries if isinstance(entry, TrainedTable))
    entry = next(entry for entry in tables if entry.name == table)
    (column,) = entry.columns
    place = column.metrics.index("SumR")
    return ", ".join(str(row.paper[column.name][place]) for row in entry.rows)


def main() -> None:
    """Print the named tables, or write all pages."""
    for name in sys.argv[1:]:
        print(_text(STUDIES, [name]))
    for path in () if sys.argv[1:] else PAGES:
        write_whole(path, generated(path.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
