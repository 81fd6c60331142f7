"""`untrimmed encoders`: list encoders by short name, with licence and sizes, and the benchmarks' kinds of features."""

from dataclasses import asdict

from untrimmed.cli.console import print_json, result_console
from untrimmed.cli.options import JsonOption

_ROW = "{:16}  {:10}  {:>5}  {:>6}  {:>10}"  # this row fits 80 columns

_KIND_ROW = "{:16}  {:>5}  {:>5}  {}"


def encoders(json_output: JsonOption = False) -> None:
    """List the encoders, and the kinds of features that benchmarks use.

    `untrimmed index --encoder` also accepts the Hugging Face id or the folder of
    any model that encodes images and texts separately, as CLIP does.
    Several kinds of features can be joined, each with its own file of weights:
    untrimmed index --encoder resnet152+i3d=WEIGHTS+roberta
    untrimmed features --kind resnet152 --kind i3d=WEIGHTS --kind roberta
    """
    from untrimmed.encoders.features.kinds import KINDS
    from untrimmed.encoders.registry import ENCODERS

    if json_output:
        print_json({"encoders": list(map(asdict, ENCODERS.values())), "kinds": list(map(asdict, KINDS.values()))})
        return
    result_console.print(_ROW.format("name", "licence", "width", "image", "parameters"))
    for card in ENCODERS.values():
        row = _ROW.format(card.name, card.licence, card.width, f"{card.image_px} px", f"{card.parameters_m} M")
        weights = f"{card.hub_id}: " if card.hub_id else ""
        result_console.print(row)
        result_console.print(f"{'':16}  {weights}{card.note}")
    result_console.print()
    result_console.print(_KIND_ROW.format("kind", "width", "per s", "weights"))
    for kind in KINDS.values():
        fps = f"{kind.fps:.2g}" if kind.fps else ""
        result_console.print(_KIND_ROW.format(kind.name, kind.width, fps, kind.weights or f"{kind.name}=FILE"))
        result_console.print(f"{'':16}  {kind.note}")
