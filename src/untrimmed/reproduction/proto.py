"""The tables and figures of ProtoPRVR (arXiv 2504.13035)."""

from untrimmed.presets.published import RECALL
from untrimmed.reproduction import entries
from untrimmed.reproduction.tables import (
    Column,
    EfficiencyTable,
    Paper,
    Row,
    SettingsTable,
    Shown,
    TrainedTable,
    titled,
)

STORED = (*RECALL, "MB a video")
TVR, ACTIVITYNET = Column(name="tvr", metrics=STORED), Column(name="activitynet", metrics=STORED)
CLIP = {"model.query_dim": 768, "model.video_dim": 768, "model.max_words": 64}


def _clip(metrics: tuple[str, ...] = RECALL, preset: str = "tvr") -> Column:
    title = f"{titled(preset)}, CLIP-L/14"
    return Column(name=f"{preset}_clip", preset=preset, title=title, overrides=CLIP, metrics=metrics)


# With features of CLIP (Table 8); the presets of tvr and activitynet have appendix 8's values for the others.
ONCE = {"model.iterations": 1, "weights.orthogonal": 0.01}
TABLE1 = TrainedTable(
    name="table1",
    title="Comparison on TVR and ActivityNet Captions, two kinds of features",
    columns=(TVR, ACTIVITYNET, _clip(STORED), _clip(STORED, "activitynet")),
    rows=(
        *entries.rows_of("MS-SL", "GMMFormer", "DL-DKD", "ProtoPRVR"),
        Row("MS-SL, CLIP-L/14", "ms_sl"),
        Row("GMMFormer, CLIP-L/14", "gmmformer"),
        Row("ProtoPRVR, CLIP-L/14", "proto", ONCE),
    ),
    left_out="CLIP4Clip (GMMFormer's table 1 has it), Cap4Video, XML, ReLoCLNet, CONQUER, PEAN, T-D3N, QASIR",
    notes=(
        entries.CLIP_NOTE,
        "MB a video: float32 numbers that the score needs at the published sizes, a video of 128 frames.",
        "SumR of GMMFormer with CLIP-L/14 on TVR is as printed; its four recalls add up to 245.0.",
    ),
)
QVHIGHLIGHTS = Column(name="qvhighlights")
BORROWED = {"model.max_words": 64}  # the token features of CLIP are longer than those of TVR's preset
TABLE2 = TrainedTable(
    name="table2",
    title="QVHighlights, videos of one source merged",
    columns=(QVHIGHLIGHTS,),
    rows=(Row("MS-SL", "ms_sl", BORROWED), Row("GMMFormer", "gmmformer", BORROWED), Row("ProtoPRVR", "proto")),
    notes=("Settings of MS-SL and GMMFormer are those of TVR; the paper does not print what it took.",),
)
TABLE3 = EfficiencyTable(
    name="table3",
    title="Time of one query and FLOPs of matching by corpus size",
    methods=entries.methods("MS-SL", "GMMFormer", "ProtoPRVR"),
    corpus_sizes=(1000, 2000, 3000, 4000),
)
TERMS = ("word_reconstruction", "frame_reconstruction", "attention_guidance", "orthogonal")
STEPS = ("prototypes alone", "+ words", "+ frames", "+ guidance", "+ diversity")
TABLE4 = TrainedTable(
    name="table4",
    title="Components, added one by one: reconstruction of words and of frames, guidance, diversity",
    columns=(_clip(),),
    rows=tuple(
        Row(name, "proto", ONCE | {f"weights.{term}": 0.0 for term in TERMS[step:]}) for step, name in enumerate(STEPS)
    ),
    notes=(entries.CLIP_NOTE,),
)
TABLE5 = TrainedTable(
    name="table5",
    title="Number of prototypes",
    columns=(_clip(("SumR", "MB a video")),),
    rows=tuple(
        Row(f"{count} prototypes", "proto", ONCE if count == 30 else ONCE | {"model.num_prototypes": count})
        for count in (10, 20, 30, 60)
    ),
    notes=(entries.CLIP_NOTE,),
)
TABLE6 = TrainedTable(
    name="table6",
    title="How prototypes are built",
    columns=(_clip(),),
    rows=(
        Row("Perceiver", "proto", ONCE | {"model.builder": "perceiver", "model.iterations": 8}),
        Row("Slot-attention", "proto", ONCE | {"model.builder": "slot_attention", "model.iterations": 3}),
        Row("ProtoPRVR", "proto", ONCE),
    ),
    notes=(
        entries.CLIP_NOTE,
        "Table 8's K is that of ProtoPRVR; how often the rivals read is not printed: as often as in their "
        "own papers: Perceiver 8 times (ImageNet), slot attention 3 times.",
    ),
)
WEIGHTS = {"attention_guidance": 0.005, "orthogonal": 0.01, "word_reconstruction": 0.1, "frame_reconstruction": 1.0}
FIGURE10 = TrainedTable(
    name="figure10",
    title="Weights of the four losses",
    columns=(_clip(("SumR",)),),
    rows=(
        *(
            Row(f"{term} {factor * weight:g}", "proto", ONCE | {f"weights.{term}": factor * weight})
            for term, weight in WEIGHTS.items()
            for factor in (0.1, 0.3, 3.0, 10.0)
        ),
        Row("default", "proto", ONCE),
    ),
    sweep=True,
    notes=(entries.CURVES,),
    picture="sweep",
)
FIGURE7 = TrainedTable(
    name="figure7",
    title="SumR by moment-to-video ratio",
    columns=(_clip(entries.BY_RATIO),),
    rows=(*entries.rows_of("MS-SL", "GMMFormer"), Row("ProtoPRVR", "proto", ONCE)),
    notes=("The paper prints curves without figures; the groups are MS-SL's.",),
    picture="moment-ratio",
)
TABLE7_NOTE = (
    "The paper: with CLIP on TVR max 1.000, mean 0.558, median 0.553, min 0.218, on ActivityNet Captions 1.000, 0.678, "
    "0.683, 0.245; with RoBERTa 1.000, 0.961, 0.961, 0.877 and 1.000, 0.994, 0.994, 0.974. It does not say of which "
    "split, nor how RoBERTa's words become one vector; ours is their mean."
)
WORDS_NOTE = (
    "Words a query, the paper's and those of the annotations: TVR 12.2 and 12.2 (val), ActivityNet Captions 13.6 and "
    "13.6 (val_1; train 13.5), QVHighlights 10.5 and 10.5 (val and train), Charades-STA 6.2 and 6.2 (both)."
)
TRAIN = entries.training("proto", "tvr")
FEATURES_NOTE = (
    "The paper does not say with which features its figures were drawn: here figures 4, 5, 6, 8 and 9 are of tvr (K is "
    "6), figures 7 and 10, as tables 4 to 6, of tvr_clip (K is 1)."
)
PAPER = Paper(
    name="proto",
    title="ProtoPRVR (arXiv 2504.13035)",
    entries=(
        TABLE1,
        TABLE2,
        TABLE3,
        TABLE4,
        TABLE5,
        TABLE6,
        Shown(
            name="table7",
            title="Similarity of text representations by backbone, and words a query (appendix 6)",
            commands=(
                "untrimmed data describe tvr_clip --root DIR --texts last",
                "untrimmed data describe activitynet_clip --root DIR --texts last",
                "untrimmed data describe tvr --root DIR --texts mean",
                "untrimmed data describe activitynet --root DIR --texts mean",
            ),
            notes=(TABLE7_NOTE, WORDS_NOTE),
        ),
        SettingsTable(
            name="table8",
            title="Hyper-parameters",
            method="proto",
            datasets=("tvr", "activitynet", "qvhighlights"),
            notes=(
                "Differences are those of appendix 8: with RoBERTa K is 6, and on ActivityNet Captions the weight of "
                "the orthogonal loss is 0.3; the presets of tvr and activitynet are for these features.",
            ),
        ),
        *entries.drawings(figure1="How videos are encoded", figure2="Overview", figure3="Reconstruction tasks"),
        Shown(
            name="figure4",
            title="What the prototypes of a video read",
            commands=(TRAIN, "untrimmed plot prototypes RUN -o figure4.png"),
            notes=(FEATURES_NOTE,),
        ),
        Shown(
            name="figure5",
            title="Attention inside the moment by rank of the prototype",
            commands=(TRAIN, "untrimmed plot attendance RUN -o figure5.png"),
        ),
        Shown(
            name="figure6",
            title="How often each prototype is matched",
            commands=(TRAIN, "untrimmed plot matching RUN -o figure6.png"),
        ),
        FIGURE7,
        Shown(
            name="figure8",
            title="Retrieved videos and moments",
            commands=(
                TRAIN,
                entries.training("gmmformer", "tvr", "GMMFORMER"),
                *entries.top("figure8", "RUN", "GMMFORMER"),
                "untrimmed plot heatmap GMMFORMER RUN -o figure8_moments.png",
            ),
            notes=(
                entries.VIDEOS,
                "What each context of a caption says, which the paper colours by hand, is not annotated.",
            ),
        ),
        Shown(
            name="figure9",
            title="First three videos of a query",
            commands=(TRAIN, *entries.top("figure9", queries=1)),
            notes=(entries.VIDEOS,),
        ),
        FIGURE10,
    ),
)
