"""The type checker that the import hook puts on the package: an int passes where a float is wanted, as for mypy."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
