"""The tables and figures of RAL (EMNLP 2025, arXiv 2509.01383)."""

from untrimmed.reproduction.tables import (
    Column,
    EfficiencyTable,
    NotCovered,
    Paper,
    Row,
    Shown,
    TrainedTable,
)

TVR, ACTIVITYNET = Column(name="tvr"), Column(name="activitynet")
FULL = (18.2, 40.4, 52.1, 88.0, 198.8)
BASE = "gmmformer_v2+ral"


def _row(name: str, method: str, tvr: tuple[float, ...], activitynet: tuple[float, ...]) -> Row:
    return Row(name=name, method=method, paper={"tvr": tvr, "activitynet": activitynet})


def _on_tvr(name: str, figures: tuple[float, ...], method: str = BASE, **overrides: object) -> Row:
    changed = {f"model.ral.{key}": value for key, value in overrides.items()}
    return Row(name=name, method=method, overrides=changed, paper={"tvr": figures})


TABLE1 = TrainedTable(
    name="table1",
    title="Comparison on TVR and ActivityNet Captions",
    columns=(TVR, ACTIVITYNET),
    rows=(
        _row("CLIP4Clip", "clip4clip", (9.9, 24.3, 34.3, 72.5, 141.0), (5.9, 19.3, 30.4, 71.6, 127.3)),
        _row("JSG", "jsg", (11.3, 29.1, 39.6, 80.9, 161.0), (6.7, 22.5, 34.8, 76.2, 140.3)),
        _row("MS-SL", "ms_sl", (13.5, 32.1, 43.4, 83.4, 172.4), (7.1, 22.5, 34.7, 75.8, 140.1)),
        _row("GMMFormer", "gmmformer", (13.9, 33.3, 44.5, 84.9, 176.6), (8.3, 24.9, 36.7, 76.1, 146.0)),
        _row("DL-DKD", "dl_dkd", (14.4, 34.9, 45.8, 84.9, 179.9), (8.0, 25.0, 37.4, 77.1, 147.6)),
        _row("GMMFormer v2", "gmmformer_v2", (16.2, 37.6, 48.8, 86.4, 189.1), (8.9, 27.1, 40.2, 78.7, 154.9)),
        _row("MS-SL + RAL", "ms_sl+ral", (14.5, 34.3, 45.8, 84.5, 179.1), (7.4, 23.4, 35.4, 76.7, 143.0)),
        _row("GMMFormer + RAL", "gmmformer+ral", (15.8, 36.4, 47.9, 86.0, 186.1), (8.4, 25.1, 37.2, 77.0, 147.7)),
        _row("GMMFormer v2 + RAL", BASE, FULL, (8.9, 27.7, 40.4, 79.1, 156.1)),
    ),
    left_out="DE++, Cap4Video, UMT-L, InternVideo2, XML, ReLoCLNet, QCLPL, PEAN, BGM-Net, ARTVL, MGAKD",
)
TABLE2 = TrainedTable(
    name="table2",
    title="Gaussian alignment (MSRA) and confidence-aware alignment (CSA) on TVR",
    columns=(TVR,),
    rows=(
        _on_tvr("neither", (16.2, 37.6, 48.8, 86.4, 189.1), "gmmformer_v2"),
        _on_tvr("MSRA", (17.5, 39.2, 50.7, 87.4, 194.8), csa=False),
        Row(
            name="CSA",
            method=BASE,
            overrides={"weights.proxy_matching": 0.0, "weights.distribution_alignment": 0.0},
            paper={"tvr": (17.0, 38.5, 51.0, 88.1, 194.5)},
        ),
        _on_tvr("both", FULL),
    ),
)
TABLE3 = TrainedTable(
    name="table3",
    title="Losses on distributions, number of proxies K, on TVR",
    columns=(TVR,),
    rows=(
        Row(
            name="w/o alignment",
            method=BASE,
            overrides={"weights.distribution_alignment": 0.0},
            paper={"tvr": (17.7, 39.9, 51.8, 88.0, 197.4)},
        ),
        Row(
            name="w/o proxy matching",
            method=BASE,
            overrides={"weights.proxy_matching": 0.0},
            paper={"tvr": (17.4, 39.7, 51.6, 87.8, 196.5)},
        ),
        _on_tvr("w/o sampling", (17.6, 39.8, 51.7, 87.6, 196.7), num_proxies=0),
        _on_tvr("K = 2", (17.9, 40.1, 51.8, 87.7, 197.5), num_proxies=2),
        _on_tvr("K = 4", (18.0, 40.3, 51.8, 87.9, 198.0), num_proxies=4),
        _on_tvr("K = 6", FULL),
    ),
)
TABLE4 = TrainedTable(
    name="table4",
    title="What distributions are made of, on TVR",
    columns=(TVR,),
    rows=(
        _on_tvr("single query", (17.6, 39.8, 51.5, 87.9, 196.9), support="single"),
        _on_tvr("local aggregation", (17.9, 40.2, 51.2, 87.4, 196.7), aggregation="local"),
        _on_tvr("global aggregation", (18.0, 40.1, 51.6, 88.2, 197.9), aggregation="global"),
        _on_tvr("support set, both", FULL),
    ),
)
MSRVTT = Column(
    name="msrvtt",
    preset="tvr",
    metrics=("R@1", "R@5", "R@10", "median_rank", "mean_rank"),
    overrides={"model.query_dim": 512, "model.video_dim": 512, "model.max_frames": 12, "model.sentence": "last"},
)
B16 = "the same program on features of ViT-B/16: lay them out as another msrvtt folder"
TABLE5 = TrainedTable(
    name="table5",
    title="Ordinary text-to-video retrieval on MSR-VTT",
    columns=(MSRVTT,),
    rows=(
        Row(name="CLIP4Clip (ViT-B/32)", method="clip4clip", paper={"msrvtt": (44.5, 71.4, 81.6, 2.0, 15.3)}),
        Row(name="+ RAL", method="clip4clip+ral", paper={"msrvtt": (47.2, 73.6, 83.1, 2.0, 12.5)}),
        Row(name="CLIP4Clip (ViT-B/16)", paper={"msrvtt": (47.1, 74.1, 81.8, 2.0, 14.9)}, without=B16),
        Row(name="+ RAL (ViT-B/16)", paper={"msrvtt": (50.2, 76.1, 85.2, 1.0, 12.7)}, without=B16),
    ),
    notes=("The paper trains CLIP end to end; here both rows learn on features that CLIP has extracted.",),
)
METHODS = {"MS-SL": "ms_sl", "GMMFormer": "gmmformer", "GMMFormer v2": "gmmformer_v2", "RAL": BASE}
TABLE6 = EfficiencyTable(
    name="table6",
    title="FLOPs and parameters",
    methods=METHODS,
    corpus_sizes=(),
    paper={
        "flops_g": {"MS-SL": (1.29,), "GMMFormer": (1.95,), "GMMFormer v2": (5.43,), "RAL": (5.75,)},
        "params_m": {"MS-SL": (4.85,), "GMMFormer": (12.85,), "GMMFormer v2": (32.27,), "RAL": (35.53,)},
    },
    notes=("The paper's third line is SumR on TVR, of table 1.",),
)
TABLE7 = EfficiencyTable(
    name="table7",
    title="Runtime of one query by corpus size",
    methods=METHODS,
    corpus_sizes=(500, 1000, 1500, 2000, 2500),
    paper={
        "runtime_ms": {
            "MS-SL": (4.89, 6.11, 8.06, 10.42, 12.93),
            "GMMFormer": (2.68, 2.93, 3.40, 3.94, 4.56),
            "GMMFormer v2": (3.95, 4.32, 5.02, 5.81, 6.73),
            "RAL": (4.61, 5.05, 5.86, 6.79, 7.86),
        }
    },
)
FIGURE4 = TrainedTable(
    name="figure4",
    title="SumR by moment-to-video ratio on TVR",
    columns=(Column(name="tvr", metrics=("SumR M/V (0,0.2]", "SumR M/V (0.2,0.4]", "SumR M/V (0.4,1]", "SumR")),),
    rows=tuple(Row(name=name, method=method) for name, method in METHODS.items()),
    notes=("The paper prints bars without figures.", "Bars: untrimmed plot moment-ratio RUN -o figure4.png"),
)
FIGURE11 = TrainedTable(
    name="figure11",
    title="Weights of distribution alignment and of proxy matching, on TVR",
    columns=(Column(name="tvr", metrics=("SumR",)),),
    rows=(
        *(
            Row(name=f"alignment {weight:g}", method=BASE, overrides={"weights.distribution_alignment": weight})
            for weight in (2.5e-5, 1.0e-4, 1.0e-3, 4.0e-3)
        ),
        *(
            Row(name=f"proxy matching {weight:g}", method=BASE, overrides={"weights.proxy_matching": weight})
            for weight in (4.0e-4, 1.0e-3, 1.0e-2, 4.0e-2)
        ),
        Row(name="as released: 0.00025 and 0.004", method=BASE),
    ),
    sweep=True,
    notes=("The paper prints curves without figures; the points are ours. A curve: untrimmed plot sweep.",),
)
TRAIN = "untrimmed train gmmformer_v2+ral --data tvr --root DIR --out RUN"
TRAIN_BASE = "untrimmed train gmmformer_v2 --data tvr --root DIR --out BASE"
DRAWING = "a drawing of the idea, nothing is measured"
EXAMPLES = "untrimmed evaluate RUN --against BASE --format json"
PAPER = Paper(
    name="ral",
    title="RAL, robust alignment learning (EMNLP 2025, arXiv 2509.01383)",
    entries=(
        TABLE1,
        TABLE2,
        TABLE3,
        TABLE4,
        TABLE5,
        TABLE6,
        TABLE7,
        NotCovered(name="figure1", title="Spurious correlation", reason=DRAWING),
        NotCovered(name="figure2", title="Framework", reason=DRAWING),
        Shown(
            name="figure3",
            title="R@1 by uncertainty of the queries",
            commands=(TRAIN, TRAIN_BASE, "untrimmed plot uncertainty RUN BASE -o figure3.png"),
        ),
        FIGURE4,
        Shown(
            name="figure5",
            title="A noise segment inserted at the start of every video",
            commands=(
                TRAIN,
                TRAIN_BASE,
                "untrimmed plot noise RUN BASE -o figure5.png",
            ),
        ),
        NotCovered(
            name="figure6",
            title="Cosine of queries with their first ten videos",
            reason="no command draws it; scores of methods with different fusion weights are not comparable",
        ),
        Shown(
            name="figure7",
            title="First videos of two queries",
            commands=(TRAIN, TRAIN_BASE, EXAMPLES),
            notes=("The JSON holds the rank of every query's video.",),
        ),
        Shown(
            name="figure8",
            title="Words against frames, and confidences of words",
            commands=(TRAIN, "untrimmed plot words RUN -o figure8.png"),
            notes=("In Python: `model.encode_queries(batch).word_weights`, one confidence a word.",),
        ),
        NotCovered(name="figure9", title="Where RAL attaches to the methods", reason=DRAWING),
        NotCovered(
            name="figure10",
            title="Uncertainty and SumR over the epochs",
            reason="a run keeps its best model only; SumR of every epoch is in metrics.jsonl, uncertainty is not",
        ),
        FIGURE11,
        Shown(name="figure12", title="First videos of more queries", commands=(TRAIN, TRAIN_BASE, EXAMPLES)),
        Shown(name="figure13", title="A query that both miss", commands=(TRAIN, TRAIN_BASE, EXAMPLES)),
    ),
)
