import torch

from untrimmed.moments.proposals import proposal_spans, proposals


def test_every_proposal_is_the_mean_of_its_span():
    units = torch.randn(2, 7, 3)
    made, spans = proposals(units), proposal_spans(7)
    assert made.shape == (2, 28, 3)
    for row, (start, end) in enumerate(spans.tolist()):
        assert torch.allclose(made[:, row], units[:, start:end].mean(dim=1), atol=1e-6)


def test_32_units_give_the_528_proposals_of_the_paper_in_its_order():
    spans = proposal_spans(32)
    assert len(spans) == 528
    # length k from start s is row (k - 1) M - (k - 1)(k - 2) / 2 + s
    assert spans[2 * 32 - 1 + 5].tolist() == [5, 8]
    assert spans[-1].tolist() == [0, 32]


def test_one_unit_is_its_own_proposal():
    assert proposals(torch.ones(1, 1, 2)).tolist() == [[[1.0, 1.0]]]
