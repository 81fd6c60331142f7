"""Generate captions and moments from a small grammar, for simulations without real annotations."""

import numpy as np

from untrimmed.data.annotations import Annotation, number_captions

_SUBJECTS = (
    "a man", "a woman", "a girl", "a boy", "a chef", "a dancer", "a farmer", "a musician", "a painter", "a nurse",
    "an old man", "a young woman", "a child", "a cyclist", "a carpenter", "a teacher",
)  # fmt: skip
_ACTIONS = {
    "cuts": ("an apple", "a carrot", "a cake", "a rope", "some paper", "a fish"),
    "washes": ("a plate", "a window", "a dog", "a car", "a shirt", "a carrot"),
    "paints": ("a wall", "a fence", "a portrait", "a chair", "a boat"),
    "carries": ("a box", "a ladder", "a basket", "a guitar", "a child", "a bicycle"),
    "opens": ("a door", "a letter", "a bottle", "a window", "a box", "an umbrella"),
    "repairs": ("a bicycle", "a radio", "a chair", "a boat", "a lamp"),
    "plays": ("a guitar", "a drum", "a piano", "the violin", "some cards"),
    "throws": ("a ball", "a stone", "a hat", "a rope", "some paper"),
    "feeds": ("a horse", "a dog", "some chickens", "a baby", "the fish"),
    "climbs": ("a ladder", "a tree", "a wall", "a hill"),
    "reads": ("a letter", "a book", "a map", "a newspaper"),
    "pours": ("some water", "some milk", "hot tea", "red wine"),
}
_PLACES = (
    "in the kitchen", "in the garden", "on the beach", "on the roof", "in a barn", "by the river", "in the street",
    "on a stage", "in the snow", "in a workshop", "at the market", "in the forest",
)  # fmt: skip
_ENDINGS = ("", " slowly", " while talking", " and smiles", " again", " with one hand", " for a friend")


def invent(num_videos: int, rng: np.random.Generator) -> list[Annotation]:
    """Return captions of videos that are one to three minutes long and have three to five moments of 3 to 15 s.

    These moments do not overlap. Half of the videos have one more caption, which covers 25 % to 90 % of the video, so
    that all moment ratios occur. All captions of a video name the same place.
    """
    annotations = []
    for video in range(num_videos):
        duration_s = float(np.round(rng.uniform(60, 180), 2))
        num_captions = int(rng.integers(3, 6))
        slot_s = duration_s / num_captions
        spans = []
        for slot in range(num_captions):
            length_s = rng.uniform(3, 15)
            start_s = slot * slot_s + rng.uniform(0, slot_s - length_s) if slot_s > length_s else slot * slot_s
            spans.append((start_s, min(start_s + length_s, (slot + 1) * slot_s)))
        if rng.random() < 0.5:
            length_s = rng.uniform(0.25, 0.9) * duration_s
            start_s = rng.uniform(0, duration_s - length_s)
            spans.append((start_s, start_s + length_s))
        place = _pick(_PLACES, rng)
        for start_s, end_s in spans:
            verb = _pick(tuple(_ACTIONS), rng)
            sentence = f"{_pick(_SUBJECTS, rng)} {verb} {_pick(_ACTIONS[verb], rng)} {place}{_pick(_ENDINGS, rng)}."
            moment = (round(float(start_s), 2), round(float(end_s), 2))
            annotations.append(Annotation(f"video{video:05d}", "", sentence, (moment,), duration_s))
    return number_captions(annotations)


def _pick(choices: tuple[str, ...], rng: np.random.Generator) -> str:
    return choices[int(rng.integers(len(choices)))]
