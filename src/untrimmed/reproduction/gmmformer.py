"""The tables and figures of GMMFormer (AAAI 2024, arXiv 2310.05195)."""

from untrimmed.reproduction import entries
from untrimmed.reproduction.tables import Column, EfficiencyTable, Paper, Row, SettingsTable, Shown, TrainedTable

OTHERS = "W2VV, HTM, HGR, RIVRL, DE++, CE, Cap4Video, ReLoCLNet, XML, CONQUER: figures quoted from other papers"
PLAIN = {"model.gaussian_widths": ["inf"]}  # one layer without a window: a vanilla Transformer block
NO_DIVERSITY = {"weights.query_diversity_v1": 0.0}
LOW, MEDIUM, HIGH = 0.5, 1.0, 5.0
GROUPS = ("SumR M/V (0,0.25]", "SumR M/V (0.25,0.5]", "SumR M/V (0.5,1]", "SumR")


def _comparison(name: str, column: Column) -> TrainedTable:
    rows = entries.rows_of("CLIP4Clip", "MS-SL", "GMMFormer")
    title = f"Comparison on {column.label}"
    return TrainedTable(name=name, title=title, columns=(column,), rows=rows, left_out=OTHERS)


TABLE4 = EfficiencyTable(
    name="table4",
    title="FLOPs and parameters",
    methods=entries.methods("CLIP4Clip", "MS-SL", "GMMFormer"),
    corpus_sizes=(),
    left_out="Cap4Video, CONQUER: quoted from other papers",
    notes=("The paper counts CLIP4Clip with its CLIP; ours works on features that CLIP has extracted.",),
)
TABLE5 = EfficiencyTable(
    name="table5",
    title="Runtime and memory of one query by corpus size",
    methods=entries.methods("MS-SL", "GMMFormer"),
    corpus_sizes=entries.CORPUS_SIZES,
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
    notes=(entries.BARS,),
    picture="moment-ratio",
)
TABLE6 = TrainedTable(
    name="table6",
    title="GMMFormer block (GB) and query diverse loss (QDL) on TVR",
    columns=(entries.TVR,),
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
    columns=(entries.TVR,),
    rows=(
        Row("Boxcar", "gmmformer", {"model.constraint": "boxcar"}),
        Row("Bartlett", "gmmformer", {"model.constraint": "bartlett"}),
        Row("Gaussian", "gmmformer"),
    ),
    notes=(entries.WINDOWS,),
)

TRAIN = entries.training("gmmformer", "tvr")
PAPER = Paper(
    name="gmmformer",
    title="GMMFormer (AAAI 2024, arXiv 2310.05195)",
    entries=(
        _comparison("table1", entries.TVR),
        _comparison("table2", entries.ACTIVITYNET),
        _comparison("table3", entries.CHARADES),
        TABLE4,
        TABLE5,
        TABLE6,
        TABLE7,
        SettingsTable(
            name="table8",
            title="Hyper-parameters",
            method="gmmformer",
            datasets=("tvr", "activitynet", "charades"),
            notes=(
                "Words and the start of hard negatives stand in the text (section 3.4, appendix), not in the table.",
                entries.WORDS,
            ),
        ),
        *entries.drawings(figure1="Retrieval pipelines", figure2="Framework", figure3="GMMFormer block"),
        FIGURE4,
        Shown(
            name="figure5",
            title="Text-clip similarity with and without GMMFormer blocks, TVR",
            commands=(
                TRAIN,
                f"{TRAIN}2 'model.gaussian_widths=[.inf]'",
                "untrimmed plot heatmap RUN RUN2 -o figure5.png",
            ),
        ),
        Shown(
            name="figure6",
            title="t-SNE of the texts of random videos without and with the query diverse loss, TVR",
            commands=(
                TRAIN,
                f"{TRAIN}3 weights.query_diversity_v1=0.0",
                "untrimmed plot texts RUN3 RUN -o figure6.png",
            ),
            notes=("The paper names neither the videos nor how many; ours are ten drawn at random: --seed N.",),
        ),
        Shown(
            name="figure7",
            title="First three videos of some queries, ActivityNet Captions",
            commands=(entries.training("gmmformer", "activitynet", "RUN4"), *entries.top("figure7", "RUN4")),
            notes=(entries.VIDEOS,),
        ),
    ),
)
