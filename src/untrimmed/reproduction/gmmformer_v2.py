"""The tables and figures of GMMFormer v2 (arXiv 2405.13824)."""

from untrimmed.reproduction import entries
from untrimmed.reproduction.tables import Column, EfficiencyTable, Paper, Row, SettingsTable, Shown, TrainedTable

SUM = Column(name="activitynet", metrics=("SumR",))
NEITHER = {"weights.query_diversity": 0.0, "weights.optimal_matching": 0.0}
PLAIN = {"model.gaussian_widths": ["inf"], "model.aggregation": "mean"}  # a vanilla Transformer layer
WIDTHS = {2: [0.1, "inf"], 4: [0.1, 1.0, 5.0, "inf"], 6: [0.1, 0.5, 1.0, 5.0, 10.0, "inf"]}
WIDTHS[8] = [0.1, 0.5, 1.0, 3.0, 5.0, 8.0, 10.0, "inf"]


def _v2(name: str, **overrides: object) -> Row:
    return Row(name, "gmmformer_v2", {f"model.{key}": value for key, value in overrides.items()})


TABLE1 = TrainedTable(
    name="table1",
    title="Comparison on three data sets",
    columns=(entries.ACTIVITYNET, entries.TVR, entries.CHARADES),
    rows=entries.rows_of("MS-SL", "JSG", "GMMFormer", "DL-DKD", "GMMFormer v2"),
    left_out="DE, W2VV++, CE, ReLoCLNet, XML, UMT-L, PEAN, InternVideo2: no program here",
)
TABLE2 = EfficiencyTable(
    name="table2",
    title="FLOPs, parameters, runtime and memory of one query on 2,500 videos",
    methods=entries.methods("MS-SL", "GMMFormer", "GMMFormer v2"),
    corpus_sizes=(2500,),
)
TABLE3 = TrainedTable(
    name="table3",
    title="Frame-level branch (FB), TC-GMMBlock, query diverse loss (QDL), optimal matching (OM)",
    columns=(entries.ACTIVITYNET,),
    rows=(
        Row("1: none", "gmmformer_v2", NEITHER | PLAIN | {"model.second_branch": "video"}),
        Row("2: FB", "gmmformer_v2", NEITHER | PLAIN),
        Row("3: FB, TC-GMMBlock", "gmmformer_v2", NEITHER),
        Row("4: FB, TC-GMMBlock, QDL", "gmmformer_v2", {"weights.optimal_matching": 0.0}),
        _v2("5: all"),
    ),
    notes=("Experiment 2 is marked with TC-GMMBlock in the paper's table, but its text adds that in experiment 3.",),
)
TABLE4 = TrainedTable(
    name="table4",
    title="Aggregation of the Gaussian blocks",
    columns=(entries.ACTIVITYNET,),
    rows=(
        _v2("AP", aggregation="mean"),
        _v2("WA", aggregation="weighted"),
        _v2("DA", aggregation="dynamic"),
        _v2("TCM"),
    ),
)
TABLE5 = TrainedTable(
    name="table5",
    title="Number of Gaussian blocks",
    columns=(SUM,),
    rows=tuple(
        Row(f"{printed}, {count}", method, {} if count == own else {"model.gaussian_widths": widths})
        for printed, method, own in (("GMMFormer", "gmmformer", 4), ("GMMFormer v2", "gmmformer_v2", 8))
        for count, widths in WIDTHS.items()
    ),
    notes=(
        "The paper samples the widths uniformly and does not print which; ours are in the commands. GMMFormer with 4 "
        "has its own.",
    ),
)
DIVERSE: dict[str, object] = {"losses.query_diversity": {"margin": 0.2, "scale": 32.0}, "weights.query_diversity": 3e-3}
MATCHED: dict[str, object] = {"losses.optimal_matching": {}, "weights.optimal_matching": 0.11}
ADDED: dict[str, dict[str, object]] = {"original": {}, "+ QDL": DIVERSE, "+ QDL and OM": DIVERSE | MATCHED}
TABLE6 = TrainedTable(
    name="table6",
    title="The two losses on other methods",
    columns=(SUM,),
    rows=tuple(
        Row(f"{printed} {name}", method, overrides)
        for printed, method in entries.methods("MS-SL", "DL-DKD").items()
        for name, overrides in ADDED.items()
    ),
    notes=("The weights are those of GMMFormer v2 on ActivityNet Captions; the paper does not print these.",),
)
TABLE8 = TrainedTable(
    name="table8",
    title="Constraint windows",
    columns=(entries.ACTIVITYNET,),
    rows=(_v2("Boxcar", constraint="boxcar"), _v2("Bartlett", constraint="bartlett"), _v2("Gaussian")),
    notes=(entries.WINDOWS,),
)
FIGURE5 = TrainedTable(
    name="figure5",
    title="(a) focusing parameter of the query diverse loss, (b) width of a single Gaussian block",
    columns=(SUM,),
    rows=(
        *(
            Row(f"(a) focus {focus:g}", "gmmformer_v2", {} if focus == 1 else {"losses.query_diversity.focus": focus})
            for focus in (0.0, 0.5, 1.0, 2.0, 3.0)
        ),
        *(_v2(f"(b) width {width}", gaussian_widths=[width]) for width in (0.1, 1.0, 5.0, 10.0, "inf")),
    ),
    sweep=True,
    notes=("The paper prints curves without figures, and not at which points; the points are ours.",),
    picture="sweep",
    panels=("(a)", "(b)"),
)
TRAIN = entries.training("gmmformer_v2", "activitynet")
NEITHER_LOSS = f"{TRAIN}2 weights.query_diversity=0.0 weights.optimal_matching=0.0"
PAPER = Paper(
    name="gmmformer_v2",
    title="GMMFormer v2 (arXiv 2405.13824)",
    entries=(
        TABLE1,
        TABLE2,
        TABLE3,
        TABLE4,
        TABLE5,
        TABLE6,
        SettingsTable(
            name="table7",
            title="Hyper-parameters",
            method="gmmformer_v2",
            datasets=("activitynet", "tvr", "charades"),
            notes=("Words stand in the text (appendix A.4.1), not in the table.", entries.WORDS),
        ),
        TABLE8,
        *entries.drawings(
            figure1="Explicit and implicit methods",
            figure2="Architecture",
            figure3="TC-GMMBlock",
            figure4="Semantic collapse",
        ),
        FIGURE5,
        Shown(
            name="figure6",
            title="t-SNE of queries and clips of two close videos, with and without the two losses",
            commands=(TRAIN, NEITHER_LOSS, "untrimmed plot tsne RUN2 RUN -o figure6.png"),
        ),
        Shown(
            name="figure7",
            title="Text-clip similarity of GMMFormer and GMMFormer v2",
            commands=(
                TRAIN,
                entries.training("gmmformer", "activitynet", "RUN1"),
                "untrimmed plot heatmap RUN1 RUN -o figure7.png",
            ),
        ),
        Shown(
            name="figure8",
            title="Positioning variance: untrained, without both losses, with one, with both",
            commands=(
                TRAIN,
                NEITHER_LOSS,
                f"{TRAIN}3 weights.optimal_matching=0.0",
                f"{TRAIN}4 train.epochs=0",
                "untrimmed plot variance RUN4 RUN2 RUN3 RUN -o figure8.png",
            ),
        ),
        Shown(
            name="figure9",
            title="First three videos of some queries",
            commands=(TRAIN, *entries.top("figure9")),
            notes=(entries.VIDEOS,),
        ),
    ),
)
