import pytest

from tests.retrieval_world import make_batch
from untrimmed.batches import TrainingBatch


@pytest.fixture
def batch() -> TrainingBatch:
    return make_batch()
