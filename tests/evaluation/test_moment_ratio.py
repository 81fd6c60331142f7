import numpy as np

from untrimmed.evaluation.moment_ratio import GMMFORMER_EDGES, group_names, group_of, recall_by_moment_ratio


def test_upper_edges_belong_to_their_group():
    assert group_of(np.array([0.0, 0.25, 0.26, 0.5, 1.0]), GMMFORMER_EDGES).tolist() == [0, 0, 1, 1, 2]
    assert group_names(GMMFORMER_EDGES) == ["(0,0.25]", "(0.25,0.5]", "(0.5,1]"]


def test_each_group_has_its_own_recall():
    result = recall_by_moment_ratio(np.array([1, 9, 1]), np.array([0.1, 0.1, 0.9]), at=(1,))
    assert result["(0,0.2]"] == {"R@1": 50.0, "SumR": 50.0, "queries": 2.0}
    assert result["(0.4,1]"]["SumR"] == 100
    assert result["(0.2,0.4]"]["queries"] == 0
