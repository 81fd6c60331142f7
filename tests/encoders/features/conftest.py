import pytest

from tests.tiny_features import save_networks, save_roberta


@pytest.fixture(scope="session")
def networks(tmp_path_factory):
    """Files of tiny networks by kind, and a folder of a tiny RoBERTa."""
    folder = tmp_path_factory.mktemp("networks")
    return {**save_networks(folder), "roberta": save_roberta(folder / "roberta")}
