"""`untrimmed encoders`: list the encoders by short name, with licence and sizes."""

from untrimmed.cli.console import result_console

_ROW = "{:16}  {:10}  {:>5}  {:>6}  {:>10}"  # fits 80 columns


def encoders() -> None:
    """List the encoders that have a short name.

    --encoder also takes the hub id or the local folder of any dual encoder.
    """
    from untrimmed.encoders.registry import ENCODERS

    result_console.print(_ROW.format("name", "licence", "width", "image", "parameters"))
    for card in ENCODERS.values():
        row = _ROW.format(card.name, card.licence, card.width, f"{card.image_px} px", f"{card.parameters_m} M")
        weights = f"{card.hub_id}: " if card.hub_id else ""
        result_console.print(row)
        result_console.print(f"{'':16}  {weights}{card.note}")
