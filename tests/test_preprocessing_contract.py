"""Every transform in the registry keeps this contract, alone and with others."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.model.moments import n_sums, window_moments
from autotransfer.preprocessing import TRANSFORMS, FittedPreprocessing, Preprocessing, check_online
from autotransfer.search.candidates import PENALIZED_NETWORKS, UNPENALIZED_NETWORKS, linear_candidates
from autotransfer.training.prepared import PreparedWindows
from autotransfer.training.windows import Windows
from tiny import assert_same_outcome, people, stacked_jobs, tiny

CPU = torch.device("cpu")
REC = people(n_subjects=4, per=70)  # more windows of a subject than are worked on at once
FOLDS = [at.leave_one_subject_out(REC)[place] for place in (0, 1, 2, 0)]  # two groups may share a fold
TRAINING, HELD_OUT = [fold.train for fold in FOLDS], [fold.held_out_rows for fold in FOLDS]
KERNEL = 5

VALUES = {  # next to the default of each
    "standardize": ("trial", "train", "online", "transductive"),
    "align": ("online", "transductive"),
    "represent": ("features", "tangent"),
    "center": ("train", "online", "transductive"),
}
NEEDED = {"center": "represent"}  # what must come before a transform


def ways() -> list[Preprocessing]:
    """Every transform at its default and at other values; at its default after one by fold, too; pairs that adapt."""
    single = {
        (name, value): kind(value)  # type: ignore[call-arg]
        for name, kind in TRANSFORMS.items()
        for value in dict.fromkeys([next(iter(vars(kind()).values())), *VALUES.get(name, ())])
    }
    found = [Preprocessing(())]
    for (name, value), transform in single.items():
        usual = value == next(key for other, key in single if other == name)
        for before in [(one,) for (other, _), one in single.items() if other == NEEDED.get(name)] or [()]:
            found.append(Preprocessing((*before, transform)))
            if name != "standardize" and usual:
                together = {type(one): one for one in (single["standardize", "train"], *before, transform)}
                found.append(Preprocessing(tuple(together[kind] for kind in TRANSFORMS.values() if kind in together)))
    found.append(Preprocessing((single["delays", 2], single["align", "online"], single["represent", "tangent"])))
    for first in VALUES["standardize"]:
        found += [Preprocessing((single["standardize", first], single["align", own])) for own in VALUES["align"]]
    return list(dict.fromkeys(found))


def searched() -> list[Preprocessing]:
    """Those of the candidates of a search."""
    networks = [way for table in (PENALIZED_NETWORKS, UNPENALIZED_NETWORKS) for own in table.values() for way in own]
    solved = [one for name in PENALIZED_NETWORKS for one in linear_candidates(name, tiny())]
    return [one.preprocessing for one in [*(at.Setting(**way) for way in networks), *solved]]


QUICK = ways()
WAYS = {" ".join(map(str, way.to_values().values())): way for way in dict.fromkeys([*QUICK, *searched()])}
EVERY = pytest.mark.parametrize(
    "way", [pytest.param(way, id=key, marks=[pytest.mark.slow] * (way not in QUICK)) for key, way in WAYS.items()]
)


def every_with_one_of(names: str, *values: object) -> pytest.MarkDecorator:
    """Every way with the values of these names in turn; with the others in the slow suite."""
    wanted = [value if isinstance(value, tuple) else (value,) for value in values]
    return pytest.mark.parametrize(
        f"way,{names}",
        [
            pytest.param(
                way,
                *own,
                id=f"{key}-{n}",
                marks=[pytest.mark.slow] * (way not in QUICK or place // 2 % len(wanted) != n),
            )
            for place, (key, way) in enumerate(WAYS.items())
            for n, own in enumerate(wanted)
        ],
    )


EXACT = {"rtol": 1e-9, "atol": 1e-9}


def fit(way: Preprocessing, training: list[np.ndarray], data: at.Recordings = REC) -> FittedPreprocessing:
    return way.fit(data.X.double(), data.subject, training)


def prepare(way: Preprocessing, data: at.Recordings = REC, kernel: int = KERNEL, **more: object) -> PreparedWindows:
    options = {"device": CPU, "dtype": torch.float64} | more
    return PreparedWindows(Windows(data, way, kernel, **options), TRAINING, HELD_OUT)  # type: ignore[arg-type]


def some_rows(of: list[np.ndarray], n: int = 9) -> Tensor:
    """(G, n), in no order, one twice."""
    draw = np.random.default_rng(0)
    return torch.from_numpy(np.stack([np.append(draw.permutation(rows)[: n - 1], rows[0]) for rows in of]))


# groups


@EVERY
def test_groups_are_fitted_as_if_alone(way: Preprocessing) -> None:
    together = fit(way, TRAINING)
    rows = some_rows(TRAINING)
    x, who = REC.X.double()[rows], REC.subject[rows]
    alone = [fit(way, [training]) for training in TRAINING]
    expected = torch.cat([own(x[g : g + 1], who[g : g + 1]) for g, own in enumerate(alone)])
    torch.testing.assert_close(together(x, who), expected, **EXACT)
    for g, own in enumerate(alone):
        assert_same_buffers(together.get_group(g), own)
    assert {len(tensor) for tensor in together.buffers()} <= {1, len(FOLDS)}
    together.select(torch.tensor([2, 0]))
    torch.testing.assert_close(together(x[[2, 0]], who[[2, 0]]), expected[[2, 0]], **EXACT)
    assert {len(tensor) for tensor in together.buffers()} <= {1, 2}


def assert_same_buffers(found: FittedPreprocessing, expected: FittedPreprocessing) -> None:
    own, other = dict(found.named_buffers()), dict(expected.named_buffers())
    assert own.keys() == other.keys()
    for name, tensor in own.items():
        torch.testing.assert_close(tensor, other[name], **EXACT, msg=name)


@every_with_one_of("in_memory", True, False)
def test_groups_that_stay_keep_their_windows(way: Preprocessing, in_memory: bool) -> None:
    prepared = prepare(way, in_memory=in_memory)
    train, held = some_rows(TRAINING), some_rows(HELD_OUT)
    before = prepared.gather(train), prepared.gather_held_out(held)
    moments = prepared.moments(before[0], train)
    prepared.select(torch.tensor([1]))
    torch.testing.assert_close(prepared.gather(train[1:2]), before[0][1:2], **EXACT)
    torch.testing.assert_close(prepared.gather_held_out(held[1:2]), before[1][1:2], **EXACT)
    if moments is not None:
        found = prepared.moments(before[0][1:2], train[1:2])
        assert found is not None
        torch.testing.assert_close(found.covariance, moments.covariance[1:2], **EXACT)


# a new subject


@EVERY
def test_pieces_of_any_size_give_the_same_windows(way: Preprocessing) -> None:
    fitted, X = fit(way, TRAINING), REC.X[REC.subject == 0].double()
    whole = fitted.start_subject().feed(X)
    assert whole.shape[1:] == (len(X), *way.shape(3, 24))
    assert len(whole) in (1, len(FOLDS))
    if way.adaptation == "transductive":
        assert fitted.start_subject().needs_all_windows
        with pytest.raises(UserError, match="all windows of a subject at once"):
            check_online(way)
        return
    check_online(way)
    for cuts in (range(len(X) + 1), (0, 1, 2, 9, len(X)), (0, 66, len(X))):
        person = fitted.start_subject()
        pieces = [person.feed(X[i:j]) for i, j in pairwise(cuts)]
        torch.testing.assert_close(torch.cat(pieces, 1), whole, **EXACT)


@EVERY
def test_without_state_a_window_is_what_forward_says(way: Preprocessing) -> None:
    fitted, X = fit(way, TRAINING), REC.X[REC.subject == 0].double()
    if way.is_online:
        with pytest.raises(UserError, match="start_subject"):
            fitted(X[None])
        return
    torch.testing.assert_close(fitted.start_subject().feed(X), fitted(X[None]), **EXACT)
    if way.adaptation == "none":
        who = torch.zeros(1, len(X), dtype=torch.int64)
        torch.testing.assert_close(fitted(X[None], who), fitted(X[None]), **EXACT)
        torch.testing.assert_close(fitted(X[None, 5:7]), fitted(X[None])[:, 5:7], **EXACT)


@EVERY
def test_no_window_changes_an_earlier_one(way: Preprocessing) -> None:
    fitted, X = fit(way, TRAINING), REC.X[REC.subject == 0].double()
    later = X.clone()
    later[30:] = 7 * later[30:].flip(0) + 50
    before, after = (fitted.start_subject().feed(own) for own in (X, later))
    assert not torch.allclose(before[:, 30:], after[:, 30:]), "the change must be able to show"
    if way.adaptation != "transductive":
        assert torch.equal(before[:, :30], after[:, :30])


@every_with_one_of("in_memory", True, False)
def test_held_out_subjects_and_labels_change_no_other_window(way: Preprocessing, in_memory: bool) -> None:
    """Fold 0 leaves subjects 3 and 0 out."""
    assert set(REC.subject[HELD_OUT[0]].tolist()) == {0, 3}
    X = REC.X.clone()
    X[REC.subject == 3] *= 9
    X[REC.subject == 3] += 4
    changed = at.Recordings(X, 1 - REC.y, REC.subject, sfreq=24)
    before, after = (prepare(way, data, in_memory=in_memory) for data in (REC, changed))
    train = torch.from_numpy(TRAINING[0]).expand(len(FOLDS), -1)
    other, own = (torch.from_numpy(np.flatnonzero(REC.subject.numpy() == s)).expand(len(FOLDS), -1) for s in (0, 3))
    assert torch.equal(before.gather(train)[0], after.gather(train)[0])
    assert torch.equal(before.gather_held_out(other)[0], after.gather_held_out(other)[0])
    if way.adaptation != "transductive" and way.to_values()["standardize"] != "trial":
        changed = before.gather_held_out(own)[0], after.gather_held_out(own)[0]
        assert not torch.allclose(*changed), "the change must be able to show"
    stored = [prepared.fitted.get_group(0).state_dict() for prepared in (before, after)]
    for name, tensor in stored[0].items():
        assert torch.equal(tensor, stored[1][name])


# what is saved and exported


@EVERY
def test_a_restored_model_prepares_windows_in_the_same_way(way: Preprocessing) -> None:
    fitted = way.fit(REC.X, REC.subject, TRAINING)
    stored, X = fitted.state_dict(), REC.X[REC.subject == 0]
    again = way.restore(stored)
    assert torch.equal(again.start_subject().feed(X), fitted.start_subject().feed(X))
    assert again.state_dict().keys() == stored.keys()
    for name in stored:
        with pytest.raises(ValueError, match=rf"{name} is missing"):
            way.restore({other: tensor for other, tensor in stored.items() if other != name})


@EVERY
def test_a_graph_does_the_same_or_is_refused(way: Preprocessing) -> None:
    fitted, X = way.fit(REC.X, REC.subject, TRAINING), REC.X[REC.subject == 0]
    X[2, 1] = 0.1  # flat
    if way.is_online or any(name == "align" for name, value in way.to_values().items() if value != "none"):
        with pytest.raises(UserError, match="use the format safetensors"):
            fitted.graph()
        return
    graph = fitted.graph()
    for n in (1, 7, len(X)):
        torch.testing.assert_close(graph(X[None, :n]), fitted.start_subject().feed(X[:n]), rtol=1e-5, atol=1e-5)


# in training


@every_with_one_of("dtype,near", (torch.float32, 1e-6), (torch.float64, 1e-12))
def test_windows_from_a_file_are_those_in_memory(way: Preprocessing, dtype: torch.dtype, near: float) -> None:
    held, read = (prepare(way, dtype=dtype, in_memory=in_memory) for in_memory in (True, False))
    train, new = some_rows(TRAINING), some_rows(HELD_OUT)
    for rows, get in ((train, "gather"), (new, "gather_held_out"), (train, "gather_any"), (new, "gather_any")):
        first, second = (getattr(prepared, get)(rows) for prepared in (held, read))
        assert first.shape == (*rows.shape, *way.shape(3, 24))
        assert first.dtype == second.dtype == dtype
        strides = [[step for step, n in zip(x.stride(), x.shape, strict=True) if n > 1] for x in (first, second)]
        assert strides[0] == strides[1], "channel-major"
        torch.testing.assert_close(first, second, rtol=near, atol=near * float(first.abs().max()))


@every_with_one_of("in_memory", True, False)
def test_training_sees_what_the_model_will(way: Preprocessing, in_memory: bool) -> None:
    """Training windows by the fitted statistics, held-out ones as those of a new subject, in the order of recording."""
    prepared, fitted = prepare(way, in_memory=in_memory), fit(way, TRAINING)
    rows = some_rows(TRAINING)
    expected = fitted(REC.X.double()[rows], REC.subject[rows])
    torch.testing.assert_close(prepared.gather(rows), expected.expand(len(FOLDS), *expected.shape[1:]), **EXACT)
    for person in REC.subject.unique():
        own = (REC.subject == person).nonzero()[:, 0]
        rows = own.expand(len(FOLDS), -1)
        held_out, mixed = prepared.gather_held_out(rows), prepared.gather_any(rows)
        groups = [g for g, held in enumerate(HELD_OUT) if person in REC.subject[held]]
        assert groups
        for g in groups:
            new = fitted.get_group(g).start_subject().feed(REC.X[own].double())[0]
            torch.testing.assert_close(held_out[g], new, **EXACT)
            torch.testing.assert_close(mixed[g], new, **EXACT)


@every_with_one_of("kernel", KERNEL, 25)  # the longer, the more is to be known of edges: more than windows have
def test_moments_are_tabulated_where_transforms_are_linear(way: Preprocessing, kernel: int) -> None:
    prepared, rows = prepare(way, kernel=kernel), some_rows(TRAINING)
    x = prepared.gather(rows)
    found = prepared.moments(x, rows)
    assert (found is not None) == way.has_cached_moments
    if found is not None:
        expected = window_moments(x, kernel)
        torch.testing.assert_close(found.mean, expected.mean, rtol=1e-7, atol=1e-9)
        torch.testing.assert_close(found.covariance, expected.covariance, rtol=1e-7, atol=1e-9)
    sums = prepared.windows.sums
    assert sums is None or (sums.shape[1] == n_sums(kernel)) == (n_sums(kernel) <= x[0, 0].numel())
    assert prepare(way, kernel=kernel, in_memory=False).moments(x, rows) is None, "the encoder works them out"


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(way, id=key, marks=[pytest.mark.slow] * (way not in QUICK or place % 3 != 1))
        for place, (key, way) in enumerate(WAYS.items())
    ],
)
def test_a_member_of_a_stack_equals_itself_alone(way: Preprocessing) -> None:
    """To the last bit where moments are tabulated; else sums of a stack are taken in another order."""
    rec, dtype = people(4, per=12), torch.float32 if way.has_cached_moments else torch.float64
    jobs = stacked_jobs(rec, preprocessing=way)[2::5]
    together = at.train(rec, jobs, "cpu", dtype=dtype)
    assert {outcome.population for outcome in together} == {len(jobs)}
    place = list(WAYS.values()).index(way) % 2 * (len(jobs) - 1)  # without a penalty or with one, of two seeds
    (alone,) = at.train(rec, [jobs[place]], "cpu", dtype=dtype)
    assert_same_outcome(alone, together[place], 0.0 if way.has_cached_moments else 1e-9)
