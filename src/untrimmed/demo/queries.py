"""The demo's 20 search queries, in the words that a user would type."""

QUERIES: dict[str, str] = {
    "cat": "a close look at the face of a tabby cat",
    "coffee": "a cup of espresso on a wooden table",
    "rocket": "a rocket waits on the launch pad at dusk",
    "motorcycle": "a red motorcycle parked in a garage",
    "astronaut": "a smiling astronaut in an orange space suit",
    "cameraman": "a man in a dark coat looks through a camera on a tripod",
    "horse": "the black silhouette of a horse",
    "coins": "rows of ancient coins",
    "page": "a page of printed text",
    "bricks": "a wall of dark bricks",
    "moon": "craters on the surface of the moon",
    "galaxies": "countless galaxies in deep space",
    "pagoda": "a Chinese pagoda high above a lake",
    "flower": "an orange flower in full bloom",
    "taxi": "a taxi sign on the roof of a car in heavy traffic",
    "cyclist": "a cyclist with a helmet waits next to a car",
    "street": "cars drive along a city street behind a railing",
    "bicycle": "an old bicycle leans against the wall of a house",
    "rabbit": "a fat grey rabbit stretches and yawns in a meadow",
    "bow tie": "a man with a bow tie talks in the back of a car",
}
"""The query for each of `SUBJECTS`, by the name of the footage."""
