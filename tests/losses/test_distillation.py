import math

import pytest
import torch

from untrimmed.losses.distillation import distillation, distillation_per_query, own_frame_cosines


def test_two_frames_by_hand():
    # Shares at temperature 1: teacher (3/4, 1/4), student (1/2, 1/2); 3/4 ln(3/2) + 1/4 ln(1/2) = 0.13081.
    student, teacher = torch.zeros(1, 2), torch.tensor([[math.log(3.0), 0.0]])
    value = distillation_per_query(student, teacher, torch.ones(1, 2, dtype=torch.bool), temperature=1.0)
    assert value.item() == pytest.approx(0.75 * math.log(1.5) + 0.25 * math.log(0.5), abs=1e-6)


def test_queries_are_added_not_averaged():
    student, teacher = torch.zeros(3, 2), torch.tensor([[1.0, 0.0]]).expand(3, 2)
    mask = torch.ones(3, 2, dtype=torch.bool)
    one = distillation(student[:1], teacher[:1], mask[:1], temperature=0.2)
    assert distillation(student, teacher, mask, temperature=0.2).item() == pytest.approx(3 * one.item(), rel=1e-6)


def test_padding_takes_no_share():
    torch.manual_seed(0)
    student, teacher = torch.rand(2, 3), torch.rand(2, 3)
    mask = torch.tensor([[True, True, True], [True, False, False]])
    whole = distillation_per_query(student, teacher, mask, temperature=0.2)
    padded = distillation_per_query(
        torch.cat([student, torch.full((2, 2), 9.0)], 1),
        torch.cat([teacher, torch.full((2, 2), -9.0)], 1),
        torch.cat([mask, torch.zeros(2, 2, dtype=torch.bool)], 1),
        temperature=0.2,
    )
    assert torch.allclose(whole, padded, atol=1e-7)
    assert whole[1] == 0


def test_the_teacher_gets_no_gradient_and_an_equal_student_none_either():
    teacher = torch.rand(2, 3, requires_grad=True)
    student = teacher.detach().clone().requires_grad_()
    distillation(student, teacher, torch.ones(2, 3, dtype=torch.bool), temperature=0.2).backward()
    assert teacher.grad is None
    assert student.grad.abs().max() < 1e-6


def test_each_query_meets_the_frames_of_its_own_video():
    frames = torch.tensor([[[2.0, 0.0], [0.0, 1.0]], [[0.0, 3.0], [-1.0, 0.0]]])
    cosine = own_frame_cosines(torch.tensor([[5.0, 0.0], [4.0, 0.0]]), frames, torch.tensor([1, 0]))
    assert cosine.tolist() == [[0.0, -1.0], [1.0, 0.0]]
