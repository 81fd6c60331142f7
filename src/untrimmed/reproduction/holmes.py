"""The main table of Holmes (ICML 2026, arXiv 2605.06083)."""

from untrimmed.reproduction import entries
from untrimmed.reproduction.tables import Paper, Row, TrainedTable

TABLE1 = TrainedTable(
    name="table1",
    title="Holmes on three data sets, with one query branch and with two",
    columns=entries.ON_VALIDATION,
    rows=(Row("Holmes", "holmes"), Row("Holmes, two query branches", "holmes+ral")),
    notes=(
        "The figures are the best epochs on the validation captions in the authors' logs, which hold no run on test "
        "captions; ours are on the validation captions, too.",
        "Systems that Holmes is compared with have their figures in their own papers' tables.",
    ),
)
PAPER = Paper(
    name="holmes",
    title="Holmes (ICML 2026, arXiv 2605.06083)",
    entries=(TABLE1,),
)
