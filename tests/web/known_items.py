"""Twenty moments of the demo's reels that somebody has seen and looks for again, and what they type, in order.

Written by looking at the reels alone, before any of the sentences was searched for: at first what comes to mind, then
the same in other words, at last with more of what was seen, or of what came next. The demo's own sentences are others.
"""

from typing import NamedTuple


class Typed(NamedTuple):
    """What is put into the box, and into the one for what follows."""

    text: str
    then: str = ""


KNOWN_ITEMS: dict[str, tuple[Typed, Typed, Typed]] = {  # the source of the moment, as in untrimmed.demo.queries
    "coins": (
        Typed("old coins"),
        Typed("rows of silver coins on a dark background"),
        Typed("coins in two rows", "handwriting on paper"),
    ),
    "astronaut": (
        Typed("an astronaut"),
        Typed("a woman in an orange space suit in front of a flag"),
        Typed("a smiling woman, a flag and a space shuttle behind her", "a colour wheel"),
    ),
    "cameraman": (
        Typed("a man filming with a camera on a tripod"),
        Typed("black and white picture of a man with a camera"),
        Typed("a man in a black coat looking through a film camera in a park"),
    ),
    "bow tie": (
        Typed("a man with a red bow tie"),
        Typed("a man in a suit sitting in a car"),
        Typed("a surprised man with a bow tie in a car", "handwriting on paper"),
    ),
    "horse": (
        Typed("a black horse"),
        Typed("silhouette of a horse on white"),
        Typed("a drawing of a black horse seen from the side"),
    ),
    "rabbit": (
        Typed("a cartoon rabbit"),
        Typed("a big grey rabbit in a green meadow"),
        Typed("an animated bunny standing in the grass"),
    ),
    "bicycle": (
        Typed("an old bicycle"),
        Typed("a bicycle standing in front of a house"),
        Typed("a bicycle leaning against a wall below a window", "a checkerboard"),
    ),
    "rocket": (
        Typed("rocket launch"),
        Typed("a rocket on its launch pad at night"),
        Typed("a rocket between towers with lights in the evening"),
    ),
    "taxi": (
        Typed("a taxi"),
        Typed("the roof of a taxi in traffic"),
        Typed("cars in a traffic jam seen over the roof of a car"),
    ),
    "flower": (
        Typed("an orange flower"),
        Typed("a dahlia"),
        Typed("a round orange flower with many petals on a dark green background"),
    ),
    "street": (
        Typed("a street with cars"),
        Typed("a bicycle leaning on a railing with cars behind it"),
        Typed("cars on a city street behind a metal fence"),
    ),
    "bricks": (
        Typed("a brick wall"),
        Typed("a wall of grey bricks"),
        Typed("grey bricks with bright joints seen from close"),
    ),
    "motorcycle": (
        Typed("a red motorcycle"),
        Typed("a motorbike in a garage"),
        Typed("a red motorbike", "cardboard boxes on a shelf"),
    ),
    "coffee": (
        Typed("a cup of coffee"),
        Typed("espresso in a brown cup with a saucer"),
        Typed("a cup with a spoon on a wooden table"),
    ),
    "galaxies": (
        Typed("stars in space"),
        Typed("galaxies"),
        Typed("colourful galaxies and stars on a black sky"),
    ),
    "cyclist": (
        Typed("a cyclist"),
        Typed("a man with a helmet on a bicycle"),
        Typed("a cyclist waiting behind a black car"),
    ),
    "moon": (
        Typed("craters on the moon"),
        Typed("the surface of the moon"),
        Typed("grey ground with round craters seen from above"),
    ),
    "page": (
        Typed("a page of text"),
        Typed("printed text in a book"),
        Typed("black printed letters on white paper"),
    ),
    "cat": (
        Typed("a cat"),
        Typed("the face of a cat"),
        Typed("a cat with green eyes from very close"),
    ),
    "pagoda": (
        Typed("a Chinese temple"),
        Typed("a pagoda"),
        Typed("a pagoda above a lake"),
    ),
}
