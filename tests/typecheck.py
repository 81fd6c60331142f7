"""The type checker of the import hook. It accepts an int for a float, like mypy."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
