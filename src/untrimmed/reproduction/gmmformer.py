"""The tables and figures of GMMFormer (AAAI 2024, arXiv 2310.05195)."""

from untrimmed.reproduction.tables import (
    Column,
    EfficiencyTable,
    NotCovered,
    Paper,
    Row,
    SettingsTable,
    Shown,
    TrainedTable,
)

TVR, ACTIVITYNET, CHARADES = Column(name="tvr"), Column(name="activitynet"), Column(name="charades")
OTHERS = "W2VV, HTM, HGR, RIVRL, DE++, CE, Cap4Video, ReLoCLNet, XML, CONQUER: figures quoted from other papers"
PLAIN = {"model.gaussian_widths": ["inf"]}  # one layer without a window: a vanilla Transformer block
NO_DIVERSITY = {"weights.query_diversity_v1": 0.0}
LOW, MEDIUM, HIGH = 0.5, 1.0, 5.0
GROUPS = ("SumR M/V (0,0.25]", "SumR M/V (0.25,0.5]", "SumR M/V (0.5,1]", "SumR")


def _comparison(name: str, column: Column) -> TrainedTable:
    rows = (Row("CLIP4Clip", "clip4clip"), Row("MS-SL", "ms_sl"), Row("GMMFormer", "gmmformer"))
    title = f"Comparison on {column.name}"
    return TrainedTable(name=name, title=title, columns=(column,), rows=rows, left_out=OTHERS)


TABLE4 = EfficiencyTable(
    name="table4",
    title="FLOPs and parameters",
    methods={"CLIP4Clip": "clip4clip", "MS-SL": "ms_sl", "GMMFormer": "gmmformer"},
    corpus_sizes=(),
    left_out="Cap4Video, CONQUER: quoted from other papers",
    notes=("The paper counts CLIP4Clip with its CLIP; ours works on features that CLIP has extracted.",),
)
TABLE5 = EfficiencyTable(
    name="table5",
    title="Runtime and memory of one query by corpus size",
    methods={"MS-SL": "ms_sl", "GMMFormer": "gmmformer"},
    corpus_sizes=(500, 1000, 1500, 2000, 2500),
)
FIGURE4 = TrainedTable(
    name="figure4",
    title="SumR by moment-to-video ratio without one of the Gaussian blocks",
    columns=(Column(name="activitynet", metrics=GROUPS),),
    rows=(
        Row("w/o low", "gmmformer", {"model.gaussian_widths": ["inf", MEDIUM, HIGH]}),
        Row("w/o medium", "gmmformer", {"model.gaussian_widths": ["inf", LOW, HIGH]}),
        Row("w/o high", "gmmformer", {"model.gaussian_widths": ["inf", LOW, MEDIUM]}),
        Row("w/o infinite", "gmmformer", {"model.gaussian_widths": [LOW, MEDIUM, HIGH]}),
        Row("full", "gmmformer"),
    ),
    notes=("The paper prints bars without figures.", "Bars: untrimmed plot moment-ratio RUN -o figure4.png"),
)
TABLE6 = TrainedTable(
    name="table6",
    title="GMMFormer block (GB) and query diverse loss (QDL) on TVR",
    columns=(TVR,),
    rows=(
        Row("neither", "gmmformer", PLAIN | NO_DIVERSITY),
        Row("GB", "gmmformer", NO_DIVERSITY),
        Row("QDL", "gmmformer", PLAIN),
        Row("GB and QDL", "gmmformer"),
    ),
)
TABLE7 = TrainedTable(
    name="table7",
    title="Constraint windows on TVR",
    columns=(TVR,),
    rows=(
        Row("Boxcar", "gmmformer", {"model.constraint": "boxcar"}),
        Row("Bartlett", "gmmformer", {"model.constraint": "bartlett"}),
        Row("Gaussian", "gmmformer"),
    ),
    notes=("No formula of the other windows is printed; ours have the variance of the Gaussian they replace.",),
)

DRAWINGS = "a drawing of the idea, nothing is measured"
PAPER = Paper(
    name="gmmformer",
    title="GMMFormer (AAAI 2024, arXiv 2310.05195)",
    entries=(
        _comparison("table1", TVR),
        _comparison("table2", ACTIVITYNET),
        _comparison("table3", CHARADES),
        TABLE4,
        TABLE5,
        TABLE6,
        TABLE7,
        SettingsTable(
            name="table8",
            title="Hyper-parameters",
            method="gmmformer",
            datasets=("tvr", "activitynet", "charades"),
        ),
        NotCovered(name="figure1", title="Retrieval pipelines", reason=DRAWINGS),
        NotCovered(name="figure2", title="Framework", reason=DRAWINGS),
        NotCovered(name="figure3", title="GMMFormer block", reason=DRAWINGS),
        FIGURE4,
        Shown(
            name="figure5",
            title="Text-clip similarity with and without GMMFormer blocks, TVR",
            commands=(
                "untrimmed train gmmformer --data tvr --root DIR --out RUN",
                "untrimmed train gmmformer --data tvr --root DIR --out RUN2 'model.gaussian_widths=[.inf]'",
                "untrimmed plot heatmap RUN RUN2 -o figure5.png",
            ),
        ),
        Shown(
            name="figure6",
            title="t-SNE of the texts of some videos, TVR",
            commands=(
                "untrimmed train gmmformer --data tvr --root DIR --out RUN",
                "untrimmed plot tsne RUN -o figure6.png",
            ),
        ),
        Shown(
            name="figure7",
            title="First three videos of some queries, ActivityNet Captions",
            commands=(
                "untrimmed train gmmformer --data activitynet --root DIR --out RUN",
                "untrimmed evaluate RUN --format json",
            ),
            notes=("The JSON holds the rank of every query's video. With the videos themselves: untrimmed search.",),
        ),
    ),
)
