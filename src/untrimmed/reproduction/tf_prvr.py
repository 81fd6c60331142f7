"""What TF-PRVR (NeurIPS 2026) prints of ActivityNet Captions."""

from untrimmed.reproduction.tables import Column, Paper, UntrainedTable

ENCODERS = {"clip_l": "CLIP-L/14", "siglip_l": "SigLIP-L/14", "eva_clip_l": "EVA-CLIP-L/14"}
TABLE1 = UntrainedTable(
    name="table1",
    title="TF-PRVR on ActivityNet Captions with three encoders",
    model="tf_prvr",
    row="TF-PRVR",
    beside="best frame",
    columns=tuple(
        Column(name=f"activitynet_{name}", metrics=("SumR",), title=title) for name, title in ENCODERS.items()
    ),
    notes=(
        "Each data set is a folder of that name with frames and sentences of one encoder beside the captions of "
        "untrimmed data prepare activitynet --name NAME; docs/data.md says in which files they lie (Without training).",
        "The number of the table is ours: of the paper we know these figures, and that others are in a picture.",
    ),
)
PAPER = Paper(name="tf_prvr", title="TF-PRVR (NeurIPS 2026)", entries=(TABLE1,))
