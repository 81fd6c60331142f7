"""The main table of DreamPRVR (CVPR 2026, arXiv 2604.03653)."""

from untrimmed.reproduction import entries
from untrimmed.reproduction.tables import Paper, Row, TrainedTable

TABLE1 = TrainedTable(
    name="table1",
    title="DreamPRVR on three data sets",
    columns=entries.ON_VALIDATION,
    rows=(Row("DreamPRVR", "dreamprvr"),),
    notes=(
        "The figures are the best epochs on the validation captions in the authors' logs, one run each, which their "
        "readme prints; ours are on the validation captions, too.",
        "Systems that DreamPRVR is compared with have their figures in their own papers' tables.",
    ),
)
PAPER = Paper(
    name="dreamprvr",
    title="DreamPRVR (CVPR 2026, arXiv 2604.03653)",
    entries=(TABLE1,),
)
