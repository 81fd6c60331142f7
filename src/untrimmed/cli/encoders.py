"""`untrimmed encoders`: the short names of encoders, with size, licence and width."""

from __future__ import annotations

from rich.table import Table

from untrimmed.cli.console import result_console


def encoders() -> None:
    """List encoders by short name; any hub id or local folder of a dual encoder works too."""
    from untrimmed.features.encoders import ENCODERS

    table = Table("name", "weights", "licence", "width", "image", "parameters", "note", title_justify="left")
    for card in ENCODERS.values():
        size = f"{card.parameters_m} M"
        weights = card.hub_id or "installed packages"
        table.add_row(card.name, weights, card.licence, str(card.width), f"{card.image_px} px", size, card.note)
    result_console.print(table)
