"""Terms and valid groups."""

from __future__ import annotations

import pytest
import torch

from autotransfer.censoring.groups import find_groups
from autotransfer.censoring.terms import make_terms, term_dims
from autotransfer.errors import UserError
from censor_problems import MODES, batch, single_term, valid_groups


def test_the_three_modes_are_the_table_of_the_method():
    z, y, s = batch()
    known = s >= 0
    (marginal,) = make_terms("marginal", z, y, s)
    assert marginal.sign == 1
    assert torch.equal(marginal.context, torch.where(known, 0, -1))
    assert torch.equal(marginal.nuisance, s)
    (conditional,) = make_terms("conditional", z, y, s)
    assert torch.equal(conditional.context, torch.where(known, y, -1))
    first, second = make_terms("complementary", z, y, s)
    assert (first.sign, second.sign) == (1, -1)
    padded = torch.where(known[..., None], z, 0.0)
    assert torch.equal(torch.cat([first.z, second.z], -1), padded)
    assert torch.equal(first.context, second.context)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("min_rows", [2, 3, 5])
def test_masks_and_sizes_of_valid_groups(mode: str, min_rows: int):
    z, y, s = batch(rows=25)
    term = single_term(z, y, s, mode)
    groups = find_groups(term, min_rows)
    for p in range(len(z)):
        expected = valid_groups(term.context[p].tolist(), term.nuisance[p].tolist(), min_rows)
        rows = {row for inside in expected.values() for group in inside.values() for row in group}
        assert set(groups.valid[p].nonzero().flatten().tolist()) == rows
        context, group = torch.zeros(25, 25, dtype=torch.bool), torch.zeros(25, 25, dtype=torch.bool)
        for inside in expected.values():
            everyone = torch.tensor(sorted(row for members in inside.values() for row in members))
            context[everyone[:, None], everyone] = True
            for members in inside.values():
                index = torch.tensor(members)
                group[index[:, None], index] = True
                assert (groups.group_rows[p, index] == len(members)).all()
                assert (groups.context_rows[p, index] == len(everyone)).all()
                assert (groups.context_groups[p, index] == len(inside)).all()
        assert torch.equal(groups.context[p], context)
        assert torch.equal(groups.group[p], group)


def test_both_branches_of_a_code_are_split() -> None:
    """Else the second branch alone would be told to keep the subject."""
    z = torch.arange(6.0).expand(1, 3, 6)
    y, s = torch.zeros(1, 3, dtype=torch.long), torch.tensor([[0, 0, 1]])
    first, second = make_terms("complementary", z, y, s, branches=(4, 2))
    assert first.z[0, 0].tolist() == [0, 1, 4]
    assert second.z[0, 0].tolist() == [2, 3, 5]
    with pytest.raises(UserError):
        term_dims("complementary", (3, 3))
