import pytest
import torch

from untrimmed.losses.distillation import distillation, distillation_per_query


def test_queries_are_added_not_averaged():
    student, teacher = torch.zeros(3, 2), torch.tensor([[1.0, 0.0]]).expand(3, 2)
    mask = torch.ones(3, 2, dtype=torch.bool)
    one = distillation(student[:1], teacher[:1], mask[:1], temperature=0.2)
    assert distillation(student, teacher, mask, temperature=0.2).item() == pytest.approx(3 * one.item(), rel=1e-6)


def test_padding_has_no_probability():
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
