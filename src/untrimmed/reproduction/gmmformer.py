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


def _comparison(name: str, column: Column, clip4clip: tuple, ms_sl: tuple, gmmformer: tuple) -> TrainedTable:
    rows = (
        Row(name="CLIP4Clip", method="clip4clip", paper={column.name: clip4clip}),
        Row(name="MS-SL", method="ms_sl", paper={column.name: ms_sl}),
        Row(name="GMMFormer", method="gmmformer", paper={column.name: gmmformer}),
    )
    title = f"Comparison on {column.name}"
    return TrainedTable(name=name, title=title, columns=(column,), rows=rows, left_out=OTHERS)


TABLE1 = _comparison(
    "table1", TVR, (9.9, 24.3, 34.3, 72.5, 141.0), (13.5, 32.1, 43.4, 83.4, 172.4), (13.9, 33.3, 44.5, 84.9, 176.6)
)
TABLE2 = _comparison(
    "table2",
    ACTIVITYNET,
    (5.9, 19.3, 30.4, 71.6, 127.3),
    (7.1, 22.5, 34.7, 75.8, 140.1),
    (8.3, 24.9, 36.7, 76.1, 146.0),
)
TABLE3 = _comparison(
    "table3", CHARADES, (1.8, 6.5, 10.9, 44.2, 63.4), (1.8, 7.1, 11.8, 47.7, 68.4), (2.1, 7.8, 12.5, 50.6, 72.9)
)
TABLE4 = EfficiencyTable(
    name="table4",
    title="FLOPs and parameters",
    methods={"CLIP4Clip": "clip4clip", "MS-SL": "ms_sl", "GMMFormer": "gmmformer"},
    corpus_sizes=(),
    paper={
        "flops_g": {"CLIP4Clip": (5.77,), "MS-SL": (1.29,), "GMMFormer": (1.95,)},
        "params_m": {"CLIP4Clip": (103.65,), "MS-SL": (4.85,), "GMMFormer": (12.85,)},
    },
    left_out="Cap4Video, CONQUER: quoted from other papers",
    notes=("The paper counts CLIP4Clip with its CLIP; ours works on features that CLIP has extracted.",),
)
TABLE5 = EfficiencyTable(
    name="table5",
    title="Runtime and memory of one query by corpus size",
    methods={"MS-SL": "ms_sl", "GMMFormer": "gmmformer"},
    corpus_sizes=(500, 1000, 1500, 2000, 2500),
    paper={
        "runtime_ms": {"MS-SL": (4.89, 6.11, 8.06, 10.42, 12.93), "GMMFormer": (2.68, 2.93, 3.40, 3.94, 4.56)},
        "memory_mb": {
            "MS-SL": (50.02, 100.04, 150.06, 200.08, 250.11),
            "GMMFormer": (2.53, 5.07, 7.60, 10.14, 12.67),
        },
    },
)
FIGURE4 = TrainedTable(
    name="figure4",
    title="SumR by moment-to-video ratio without one of the Gaussian blocks",
    columns=(Column(name="activitynet", metrics=GROUPS),),
    rows=(
        Row(name="w/o low", method="gmmformer", overrides={"model.gaussian_widths": ["inf", MEDIUM, HIGH]}),
        Row(name="w/o medium", method="gmmformer", overrides={"model.gaussian_widths": ["inf", LOW, HIGH]}),
        Row(name="w/o high", method="gmmformer", overrides={"model.gaussian_widths": ["inf", LOW, MEDIUM]}),
        Row(name="w/o infinite", method="gmmformer", overrides={"model.gaussian_widths": [LOW, MEDIUM, HIGH]}),
        Row(name="full", method="gmmformer"),
    ),
    notes=("The paper prints bars without figures.", "Bars: untrimmed plot moment-ratio RUN -o figure4.png"),
)
TABLE6 = TrainedTable(
    name="table6",
    title="GMMFormer block (GB) and query diverse loss (QDL) on TVR",
    columns=(TVR,),
    rows=(
        Row(
            name="neither",
            method="gmmformer",
            overrides=PLAIN | NO_DIVERSITY,
            paper={"tvr": (11.6, 29.6, 40.4, 81.8, 163.5)},
        ),
        Row(name="GB", method="gmmformer", overrides=NO_DIVERSITY, paper={"tvr": (12.9, 32.2, 43.9, 83.9, 172.9)}),
        Row(name="QDL", method="gmmformer", overrides=PLAIN, paper={"tvr": (12.3, 31.4, 42.5, 83.6, 169.9)}),
        Row(name="GB and QDL", method="gmmformer", paper={"tvr": (13.9, 33.3, 44.5, 84.9, 176.6)}),
    ),
)
TABLE7 = TrainedTable(
    name="table7",
    title="Constraint windows on TVR",
    columns=(TVR,),
    rows=(
        Row(
            name="Boxcar",
            method="gmmformer",
            overrides={"model.constraint": "boxcar"},
            paper={"tvr": (12.9, 32.1, 43.3, 83.9, 172.1)},
        ),
        Row(
            name="Bartlett",
            method="gmmformer",
            overrides={"model.constraint": "bartlett"},
            paper={"tvr": (13.1, 32.6, 43.8, 84.4, 174.0)},
        ),
        Row(name="Gaussian", method="gmmformer", paper={"tvr": (13.9, 33.3, 44.5, 84.9, 176.6)}),
    ),
    notes=("No formula of the other windows is printed; ours have the variance of the Gaussian they replace.",),
)

DRAWINGS = "a drawing of the idea, nothing is measured"
PAPER = Paper(
    name="gmmformer",
    title="GMMFormer (AAAI 2024, arXiv 2310.05195)",
    entries=(
        TABLE1,
        TABLE2,
        TABLE3,
        TABLE4,
        TABLE5,
        TABLE6,
        TABLE7,
        SettingsTable(
            name="table8",
            title="Hyper-parameters",
            method="gmmformer",
            datasets=("tvr", "activitynet", "charades"),
            paper={
                "train.learning_rate": (3e-4, 2.5e-4, 2.5e-4),
                "model.frame_weight": (0.3, 0.3, 0.3),
                "model.clip_weight": (0.7, 0.7, 0.7),
                "losses.query_diversity_v1.scale": (32, 32, 32),
                "losses.query_diversity_v1.margin": (0.15, 0.2, 0.15),
                "model.margin": (0.1, 0.2, 0.2),
                "weights.clip_nce": (5e-2, 2e-2, 2e-2),
                "weights.frame_nce": (4e-2, 4e-2, 2e-2),
                "weights.query_diversity_v1": (1e-3, 1.5e-2, 5e-3),
            },
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
