"""What people keep from day to day: the posterior of another day by brute force, its shares, and its three doors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.folds import Fold
from autotransfer.models.assembly import Part, assemble_mixture
from autotransfer.models.loading import load_model
from autotransfer.models.mixture import Mixture
from autotransfer.person.calibration import calibrate_model, calibrated_with
from autotransfer.recordings import Raw
from autotransfer.settings import Setting
from autotransfer.training.days import Days, fit_days, on_another_day
from autotransfer.training.effects import Effects, Evidence

B, E, MU = 2.0, 0.7, torch.tensor([0.0, 1.0, -2.0])
EVERYONE = Effects(torch.ones(1, 1, 1), MU.view(1, -1, 1), torch.full((1, 1), B), torch.full((1, 1), E))


def shares(shift: float, interaction: float) -> Days:
    return Days(torch.tensor([shift]), torch.tensor([interaction]))


def evidence(x: np.ndarray, y: np.ndarray) -> Evidence:
    return EVERYONE.evidence(torch.from_numpy(x)[None, :, None].float(), torch.eye(3)[torch.from_numpy(y)])


def test_another_day_is_that_of_the_joint_gaussian() -> None:
    """Condition today's (δ + ε_c) on every window of two earlier days, from a covariance written down cell by cell."""
    draw = np.random.default_rng(0)
    day, y = np.array([0, 0, 0, 1, 1, 1, 1]), np.array([0, 0, 2, 0, 1, 1, 2])
    x, kept_b, kept_e = draw.normal(2, 2, 7), 0.6, 0.3
    cells = [*zip(day, y, strict=True), *((2, c) for c in range(3))]
    prior = np.array([[(B if d == f else kept_b * B) + (c == g) * (E if d == f else kept_e * E) for f, g in cells]
                      for d, c in cells])  # fmt: skip
    gain = prior[7:, :7] @ np.linalg.inv(prior[:7, :7] + np.eye(7))
    mean, covariance = MU.numpy() + gain @ (x - MU.numpy()[y]), prior[7:, 7:] - gain @ prior[:7, 7:]
    earlier = [evidence(x[day == d], y[day == d]) for d in (0, 1)]
    found = on_another_day(EVERYONE, shares(kept_b, kept_e), earlier, alike=1.0)
    np.testing.assert_allclose(found.means[0, :, 0], mean, rtol=1e-5)
    np.testing.assert_allclose((found.shift + found.interaction).item(), np.trace(covariance) / 3, rtol=1e-5)
    off = covariance[~np.eye(3, dtype=bool)].mean()
    np.testing.assert_allclose(found.shift.item(), off, rtol=1e-4)


def shares_by_loops(x: np.ndarray, y: np.ndarray, person: np.ndarray, day: np.ndarray) -> list[float]:
    """Products of two days over squares of one, less what a day's few windows add to them, person by person."""
    kept, total = np.zeros(2), np.zeros(2)
    for who in np.unique(person):
        days = np.unique(day[person == who])
        cells = {(d, c): x[(person == who) & (day == d) & (y == c)] - MU[c].item() for d in days for c in range(3)}
        classes = [c for c in range(3) if all(len(cells[d, c]) for d in days)]
        shift = {d: np.mean([cells[d, c].mean() for c in classes]) for d in days}
        own = {(d, c): cells[d, c].mean() - shift[d] for d in days for c in classes}
        noise = np.mean([1 / len(cells[d, c]) for d in days for c in classes])
        pairs = [(d, f) for d in days for f in days if d != f]
        kept[0] += np.mean([shift[d] * shift[f] for d, f in pairs])
        kept[1] += np.mean([own[d, c] * own[f, c] for d, f in pairs for c in classes])
        total[0] += np.mean([value**2 for value in shift.values()]) - noise / len(classes)
        total[1] += np.mean([value**2 for value in own.values()]) - noise * (1 - 1 / len(classes))
    return list(np.clip(kept / total, 0, 1))


def few_windows(kept: float, people: int = 12) -> tuple[np.ndarray, ...]:
    """One to three windows of each class on each of three days; every third person lacks a class on one of them."""
    draw = np.random.default_rng(1)
    rows = [
        (who, d, c) for who in range(people) for d in range(3) for c in range(3)
        for _ in range(0 if who % 3 == 0 and (d, c) == (1, 2) else 1 + (who + d + c) % 3)
    ]  # fmt: skip
    person, day, y = np.array(rows).T
    stay, go = (np.sqrt(2 * share) * draw.normal(size=(people, 3)) for share in (kept, 1 - kept))
    own, odd = (np.sqrt(0.7 * share) * draw.normal(size=(people, 3, 3)) for share in (kept, 1 - kept))
    x = MU.numpy()[y] + stay[person, 0] + go[person, day] + own[person, 0, y] + odd[person, day, y]
    return x + draw.normal(size=len(x)), y, person, day


def test_shares_are_those_of_loops_over_people_and_pairs_of_days() -> None:
    x, y, person, day = few_windows(0.5)
    codes = torch.from_numpy(x)[:, None].float()
    found = fit_days(EVERYONE, codes, *map(torch.from_numpy, (y, person, day)), 3)
    assert found is not None
    expected = shares_by_loops(x, y, person, day)
    assert all(0.05 < share < 0.95 for share in expected), "nothing is cut off"
    np.testing.assert_allclose([own.item() for own in found], expected, rtol=1e-4)


REC = at.synthetic(n_subjects=6, n_classes=3, trials_per_class=12, n_channels=4, n_times=32, subject_shift=1.0)
NEW = np.flatnonzero(REC.subject.numpy() == 5)
DAYS = np.where(np.arange(REC.n_trials) % 36 < 18, 1, 2)  # halves of what everybody did
FIRST, SECOND, LATER = NEW[:6], NEW[18:24], NEW[24:]


def model_of(session: np.ndarray | None) -> Mixture:
    rec = at.Recordings(REC.X, REC.y, REC.subject, session=session, sfreq=REC.sfreq)
    fold = Fold(np.flatnonzero(REC.subject.numpy() != 5))
    settings = [Setting(encoder="linear", represent=name, standardize="none") for name in ("features", "tangent")]
    outcomes = at.train(rec, [at.Job(one, fold, 0) for one in settings], "cpu", progress=False)
    parts = [Part(s, [o.final_state], [fold], e) for s, o, e in zip(settings, outcomes, (0.4, 0.8), strict=True)]
    return assemble_mixture(rec, parts, scores={})


@pytest.fixture(scope="module")
def model() -> Mixture:
    """Its shares are set, so that days matter."""
    own = model_of(DAYS)
    assert all(part.days is not None for part in own.parts)
    for part in own.parts:
        part.days = Days(torch.tensor([0.5]), torch.tensor([0.2]))
    return own


def labels_of(rows: np.ndarray) -> Tensor:
    return REC.y[torch.from_numpy(rows)]


def test_a_session_on_another_day_is_a_calibration(model: Mixture, tmp_path: Path) -> None:
    both = np.append(FIRST, SECOND)
    day = torch.from_numpy(DAYS[both])
    new_day = calibrate_model(model, REC.X[FIRST], labels_of(FIRST), new_day=True).predict_proba(REC.X[LATER])
    second_day = calibrate_model(model, REC.X[both], labels_of(both), day).predict_proba(REC.X[LATER])
    session = at.Session(model)
    session.label(REC.X[FIRST], labels_of(FIRST))
    same_day = session.predict_proba(REC.X[LATER])
    session.new_day()
    assert (session.n_windows, session.n_labels) == (0, len(FIRST))
    np.testing.assert_allclose(session.predict_proba(REC.X[LATER]), new_day, atol=1e-5)
    session.label(REC.X[SECOND], labels_of(SECOND))
    session.save(tmp_path / "ann.session")
    again = at.Session.load(tmp_path / "ann.session", model)
    for one in (session, again):
        np.testing.assert_allclose(one.predict_proba(REC.X[LATER]), second_day, atol=1e-5)
    alike = calibrate_model(model, REC.X[both], labels_of(both)).predict_proba(REC.X[LATER])
    for other in (same_day, model.predict_proba(REC.X[LATER]), second_day):
        assert np.abs(other - new_day).max() > 1e-3, "days must matter"
    assert np.abs(alike - second_day).max() > 1e-3


def test_shares_are_saved_and_a_reader_tells_days(model: Mixture, tmp_path: Path) -> None:
    model.save(tmp_path)
    again = load_model(tmp_path)
    both = np.append(FIRST, SECOND)
    raw = Raw(X=REC.X[both].numpy(), y=labels_of(both).numpy(), session=DAYS[both])
    want = calibrate_model(model, REC.X[both], labels_of(both), torch.from_numpy(DAYS[both])).predict_proba(
        REC.X[LATER]
    )
    np.testing.assert_allclose(calibrated_with(again, raw, REC.X[both])[0].predict_proba(REC.X[LATER]), want, atol=1e-5)
    other = calibrated_with(again, raw, REC.X[both], new_day=True)[0].predict_proba(REC.X[LATER])
    assert np.abs(other - want).max() > 1e-3
    with pytest.raises(UserError, match="session"):
        calibrated_with(again, Raw(X=raw.X, y=raw.y, session=DAYS[:3]), REC.X[both])


def test_where_nobody_came_twice_labels_of_all_days_count_alike() -> None:
    own = model_of(None)
    want = calibrate_model(own, REC.X[FIRST], labels_of(FIRST)).predict_proba(REC.X[LATER])
    with pytest.warns(UserWarning, match="from day to day"):
        found = calibrate_model(own, REC.X[FIRST], labels_of(FIRST), new_day=True)
    np.testing.assert_array_equal(found.predict_proba(REC.X[LATER]), want)
    session = at.Session(own)
    session.label(REC.X[FIRST], labels_of(FIRST))
    session.new_day()
    np.testing.assert_allclose(session.predict_proba(REC.X[LATER]), want, atol=1e-5)
