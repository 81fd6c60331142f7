"""The tables and figures of JSG (ACM MM 2023)."""

from collections.abc import Mapping

from untrimmed.reproduction.tables import Column, NotCovered, Paper, Row, Shown, TrainedTable

EVENTS = tuple(f"R@{k} IoU={iou}" for iou in (0.3, 0.5, 0.7) for k in (10, 100))


def _event(data: str, metrics: tuple[str, ...] = EVENTS) -> Column:
    return Column(name=f"{data}_event", data=data, metrics=metrics, events=True)


CHARADES, ACTIVITYNET = Column(name="charades"), Column(name="activitynet")
MOMENTS = "MS-SL's moments are pooled over its encoded units under JSG's windows; the paper takes its clip proposals."
TABLE1 = TrainedTable(
    name="table1",
    title="Moments on ActivityNet Captions",
    columns=(_event("activitynet"),),
    rows=(
        Row(name="MS-SL", method="ms_sl", paper={"activitynet_event": (10.80, 28.31, 5.85, 15.65, 2.46, 6.60)}),
        Row(name="JSG", method="jsg", paper={"activitynet_event": (13.27, 40.61, 8.76, 29.98, 3.83, 15.78)}),
    ),
    left_out="MCN, CAL, XML, HMAN, ReLoCLNet: no program here",
    notes=(MOMENTS,),
)
TABLE2 = TrainedTable(
    name="table2",
    title="Moments on Charades-STA and DiDeMo",
    columns=(_event("charades"), _event("didemo")),
    rows=(
        Row(
            name="MS-SL",
            method="ms_sl",
            paper={
                "charades_event": (4.46, 17.61, 2.55, 10.05, 0.91, 3.76),
                "didemo_event": (8.81, 29.03, 5.45, 20.32, 2.96, 12.41),
            },
        ),
        Row(
            name="JSG",
            method="jsg",
            paper={
                "charades_event": (7.23, 28.71, 5.67, 22.50, 3.28, 12.34),
                "didemo_event": (10.95, 39.18, 9.29, 35.03, 7.11, 27.17),
            },
        ),
    ),
    left_out="MCN, CAL, XML, ReLoCLNet, HMAN: no program here",
    notes=(MOMENTS, "MS-SL has no preset for DiDeMo; it takes TVR's, with the widths of the features."),
)


def _videos(name: str, column: Column, ms_sl: tuple[float, ...], jsg: tuple[float, ...]) -> TrainedTable:
    rows = (
        Row(name="MS-SL", method="ms_sl", paper={column.name: ms_sl}),
        Row(name="JSG", method="jsg", paper={column.name: jsg}),
    )
    left_out = "XML, DE++, ReLoCLNet, RIVRL: no program here"
    return TrainedTable(name=name, title=f"Videos on {column.name}", columns=(column,), rows=rows, left_out=left_out)


TABLE3 = _videos("table3", CHARADES, (1.8, 7.1, 11.8, 47.7, 68.4), (2.4, 7.7, 12.8, 49.8, 72.7))
TABLE4 = _videos("table4", ACTIVITYNET, (7.1, 22.5, 34.7, 75.8, 140.1), (6.8, 22.7, 34.8, 76.1, 140.5))

GLANCE = {"rank_moments_by": "glance", "glance_weight": 1.0, "gaze_weight": 0.0}
GAZE = {"rank_moments_by": "gaze", "glance_weight": 0.0, "gaze_weight": 1.0}
SUM = {"rank_moments_by": "sum"}
NO_INTRA = {f"weights.intra_{side}": 0.0 for side in ("left", "right", "whole")}
NO_GAZE = {"weights.gaze_nce": 0.0, "weights.gaze_triplet": 0.0}
BOTH = (
    _event("charades", ("R@10 IoU=0.3", "R@10 IoU=0.5", "R@10 IoU=0.7")),
    Column(name="charades", metrics=("R@10", "R@100")),
)


def _row(
    name: str,
    event: tuple[float, ...],
    video: tuple[float, ...],
    overrides: Mapping[str, object] | None = None,
    evaluated_with: Mapping[str, object] | None = None,
) -> Row:
    return Row(
        name=name,
        method="jsg",
        overrides=overrides or {},
        evaluated_with=evaluated_with or {},
        paper={"charades_event": event, "charades": video},
    )


TABLE5 = TrainedTable(
    name="table5",
    title="Components and ranking strategies on Charades-STA",
    columns=BOTH,
    rows=(
        _row("w/o CBPG", (5.35, 4.11, 1.96), (11.9, 49.5), {"model.proposals": "sliding"}),
        _row("w/o GWP", (3.06, 1.80, 0.62), (12.7, 49.0), {"model.pooling": "mean"}),
        _row("w/o GD", (5.11, 3.90, 2.18), (12.2, 49.1), {"model.glance_input": "frames"}),
        _row("w/o GZ", (4.06, 2.96, 1.75), (9.30, 44.6), NO_GAZE | NO_INTRA, GLANCE),
        _row("full", (7.23, 5.67, 3.28), (12.8, 49.8)),
        _row("GLC-sim", (3.41, 2.53, 1.56), (9.8, 44.5), None, GLANCE),
        _row("GZ-sim", (7.23, 5.67, 3.28), (12.5, 49.2), None, GAZE),
        _row("Sum-sim", (6.29, 4.95, 2.72), (12.8, 49.8), None, SUM),
    ),
    simulated_columns=2,
    notes=("Moments come from the event variant, videos from the video variant, as the paper reports them.",),
)
TABLE6 = TrainedTable(
    name="table6",
    title="Training objectives on Charades-STA",
    columns=(_event("charades", ("R@10 IoU=0.3", "R@10 IoU=0.5")), Column(name="charades", metrics=("R@10", "R@100"))),
    rows=(
        Row(
            name="none",
            paper={"charades_event": (0.08, 0.03), "charades": (0.6, 7.6)},
            without="an untrained model: without a loss there is nothing to train",
        ),
        _row("glance", (4.49, 3.36), (9.8, 47.3), NO_GAZE | NO_INTRA),
        _row("glance, gaze", (6.26, 4.44), (12.8, 49.8), NO_INTRA),
        _row("glance, intra", (4.44, 3.31), (11.8, 48.4), NO_GAZE),
        _row("glance, gaze, intra", (7.23, 5.67), (12.8, 49.8)),
    ),
    simulated_columns=2,
    notes=("The video variant has no weight on intra-video terms, so its two pairs of rows are equal.",),
)
STRATEGIES = (("GLC-sim", GLANCE), ("GZ-sim", GAZE), ("Sum-sim", SUM))


def _strategies(name: str, title: str, column: Column) -> TrainedTable:
    rows = tuple(Row(name=row, method="jsg", evaluated_with=settings) for row, settings in STRATEGIES)
    notes = ("The paper prints bars without figures.",)
    return TrainedTable(name=name, title=title, columns=(column,), rows=rows, notes=notes)


DRAWING = "a drawing of the idea, nothing is measured"
PAPER = Paper(
    name="jsg",
    title="JSG, joint searching and grounding (ACM MM 2023)",
    entries=(
        TABLE1,
        TABLE2,
        TABLE3,
        TABLE4,
        TABLE5,
        TABLE6,
        NotCovered(name="figure1", title="The task", reason=DRAWING),
        NotCovered(name="figure2", title="Framework", reason=DRAWING),
        Shown(
            name="figure3",
            title="First three videos of two queries and the moments in them",
            commands=(
                "untrimmed train jsg --data charades --preset charades_event --root DIR --out RUN",
                "untrimmed plot heatmap RUN -o figure3.png",
            ),
        ),
        _strategies("figure4", "Ranking strategies for moments on Charades-STA", _event("charades")),
        _strategies("figure5", "Ranking strategies for videos on Charades-STA", CHARADES),
    ),
)
