"""The five papers by name."""

from untrimmed.errors import UnknownNameError
from untrimmed.reproduction import gmmformer, gmmformer_v2, jsg, proto, ral
from untrimmed.reproduction.tables import Paper

PAPERS = {module.PAPER.name: module.PAPER for module in (gmmformer, gmmformer_v2, ral, proto, jsg)}


def paper_named(name: str) -> Paper:
    """The paper of that name.

    Raises: UnknownNameError when there is none.
    """
    if name not in PAPERS:
        raise UnknownNameError.among("paper", name, PAPERS)
    return PAPERS[name]
