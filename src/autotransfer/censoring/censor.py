"""Censor: the penalty of a method, summed over the terms of a mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import UserError, one_line, shown
from ..randomness import as_keys, fold_in, key_of
from .method import Method, MethodOptions
from .terms import MODES, Labels, Term, TermSpec, make_labels, make_terms, term_dims

T = TypeVar("T")


def code_path(method: type[Method], options: MethodOptions) -> tuple[object, ...]:
    """Return (name, value) of all options that must be equal in stacked members, because they select operations."""
    return tuple((name, value) for name, value in asdict(options).items() if name not in method.per_member)


class _LastResult(Generic[T]):
    """Cache of one result, valid until the tensors from which it was computed change."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.inputs: tuple[object, ...] = ()
        self.versions: list[int] = []
        self.results: list[T] = []

    def get(self, inputs: tuple[object, ...], make: Callable[[], T]) -> T:
        """Return the cached result if the tensors are the same and unchanged, otherwise the result of `make`."""
        tensors = [tensor for tensor in inputs if isinstance(tensor, Tensor) and not tensor.is_inference()]
        if len(tensors) < len(inputs) or torch.compiler.is_compiling():
            return make()
        versions = [tensor._version for tensor in tensors]
        if versions != self.versions or any(a is not b for a, b in zip(inputs, self.inputs, strict=True)):
            self.inputs, self.versions, self.results = inputs, versions, [make()]
        return self.results[0]

    def __reduce__(self) -> tuple[type[_LastResult[T]], tuple[()]]:
        return type(self), ()  # pickles and copies without the cached result


class Censor(nn.Module):
    """Penalty on the dependence of z on s, Σ sign · dependence(term), for one model or for P members at once.

    In a training loop::

        penalty = censor(z, y, s)            # times a strength, added to the loss of the encoder
        loss = censor.critic_loss(z, y, s)   # minimized by a separate optimizer; None: the method has no critic
        censor.after_step()                  # once per main step (update of the encoder)

    For a single model z is (B, D) and results are (); with members z is (P, B, D) and results are (P,). y and s are
    integers (B,) or (P, B) below n_classes and n_subjects. Rows with s < 0 are padding. If `checks_ids` is true, y and
    s are checked in every call on a CPU, but only in the first call on a GPU, because a check waits for the device. The
    penalty has a gradient only in z, and the critic loss only in the parameters of the critics. All state is in
    parameters and buffers, which have the member on axis 0.
    """

    keys: Tensor  # (P,) or () int32: a function of each member's seed
    step: Tensor  # (P,) or () int32: main steps taken

    def __init__(
        self, method: type[Method], mode: str, options: Sequence[MethodOptions], *, latent_dim: int, n_classes: int,
        n_subjects: int, seeds: Sequence[int], members: int | None = None, min_rows: int = 2,
        branches: Sequence[int] | None = None, checks_ids: bool = False,
    ) -> None:  # fmt: skip
        """Make one instance of the method per term of the mode.

        options, seeds: one per member; the options of members may differ only in `method.per_member`
        branches: widths of the branches that an encoder concatenates to z; the mode `complementary` splits each
            branch; None: z is one branch
        """
        super().__init__()
        self.n_classes, self.n_subjects = n_classes, n_subjects
        self.checks_ids, self._checked_on = checks_ids, torch.device("cpu")
        if len(options) != (members or 1) or len(seeds) != len(options):
            raise UserError(
                f"{len(options)} options and {len(seeds)} seeds for {members or 1} members; give one per member"
            )
        for name, value, least in (
            ("latent_dim", latent_dim, 1), ("n_classes", n_classes, 1), ("n_subjects", n_subjects, 1),
            ("min_rows", min_rows, 2),
        ):  # fmt: skip
            if value < least:
                raise UserError(f"{name} is {value}; it must be at least {least}")
        if len({code_path(method, member_options) for member_options in options}) > 1:
            raise UserError(f"stacked members may differ only in {', '.join(method.per_member) or 'their seeds'}")
        self.mode = mode
        # In one step, critics and penalty have equal labels, and all critic updates have equal latents.
        self._labels, self._critic_terms = _LastResult[dict[bool, Labels]](), _LastResult[list[Term]]()
        self.latent_dim = latent_dim
        self.branches = tuple(branches or (latent_dim,))
        if sum(self.branches) != latent_dim:
            widths = " + ".join(map(str, self.branches))
            raise UserError(f"latent_dim is {latent_dim}, but the branches are {widths}; give branches that sum to it")
        self.members = members
        context_counts = [n_classes if rule.by_class else 1 for rule in MODES[self.mode]]
        dims = term_dims(self.mode, self.branches)
        self.methods = nn.ModuleList()
        for index, (dim, n_contexts) in enumerate(zip(dims, context_counts, strict=True)):
            keys = as_keys([key_of("critic", seed, index) for seed in seeds])
            spec = TermSpec(members, dim, n_contexts, n_subjects, min_rows, keys)
            self.methods.append(method(spec, options))
        keys = as_keys([key_of("draws", seed) for seed in seeds])
        self.register_buffer("keys", keys[0] if members is None else keys)
        self.register_buffer("step", torch.zeros_like(self.keys))

    def forward(self, z: Tensor, y: Tensor, s: Tensor) -> Tensor:
        """Return the penalty, () or (P,), with a gradient in z but not in the critics."""
        terms, key = self._terms(z, y, s), self._key()
        parts = [term.sign * self._method(i).dependence(term, key) for i, term in enumerate(terms)]
        return self._drop_member_axis(sum(parts[1:], parts[0]))

    def critic_loss(self, z: Tensor, y: Tensor, s: Tensor) -> Tensor | None:
        """Return the loss of the critics, () or (P,); None if the method has no critic."""
        terms, key = self._critic_terms.get((z, y, s), lambda: self._make_critic_terms(z, y, s)), self._key()
        losses = [self._method(i).critic_loss(term, key) for i, term in enumerate(terms)]
        parts = [loss for loss in losses if loss is not None]
        return self._drop_member_axis(sum(parts[1:], parts[0])) if parts else None

    @torch.no_grad()
    def after_step(self, active: Tensor | None = None) -> None:
        """Advance random keys and states of the methods; active: (P,) bool, members that took the step, None: all."""
        if active is None:
            active = torch.ones_like(self.step, dtype=torch.bool)
        self._labels.clear()
        self._critic_terms.clear()
        self.step += active.reshape(self.step.shape).to(self.step.dtype)
        for i in range(len(self.methods)):
            self._method(i).after_step(active.reshape(-1))

    @torch.no_grad()
    def select(self, members: Tensor) -> None:
        """Keep only the members with these indices (Q,), in this order."""
        if self.members is None:
            raise UserError("the censor is for a single model; make it with members=P")
        for tensor in (*self.parameters(), *self.buffers()):
            grad, tensor.grad = tensor.grad, None
            tensor.data = tensor.data.index_select(0, members)
            tensor.grad = None if grad is None else grad.index_select(0, members)
        self.members = len(members)

    def _method(self, index: int) -> Method:
        method = self.methods[index]
        assert isinstance(method, Method)
        return method

    def _key(self) -> Tensor:
        return fold_in(self.keys, self.step).reshape(-1)

    def _drop_member_axis(self, value: Tensor) -> Tensor:
        return value[0] if self.members is None else value

    def _terms(self, z: Tensor, y: Tensor, s: Tensor) -> list[Term]:
        if not isinstance(z, Tensor):
            raise UserError(f"z is {_type_words(z)}; give the encoder's output as a tensor, for its gradient")
        lead = () if self.members is None else (self.members,)
        if z.ndim != len(lead) + 2 or z.shape[: len(lead)] != lead or z.shape[-1] != self.latent_dim:
            wanted = ", ".join([*map(str, lead), "B", str(self.latent_dim)])
            raise UserError(f"z has shape {tuple(z.shape)}; it must be ({wanted})")
        if not z.is_floating_point():
            raise UserError(
                f"z has dtype {str(z.dtype).removeprefix('torch.')}; give a real floating-point type such as float32"
            )
        if (rows := z.shape[-2]) == 0:
            raise UserError(f"z has shape {tuple(z.shape)}; give at least one row")
        z = z.reshape(-1, rows, self.latent_dim)
        labels = []
        for name, ids in (("y", _as_ids("y", y, z)), ("s", _as_ids("s", s, z))):
            if ids.is_floating_point() or ids.is_complex() or ids.shape not in ((rows,), z.shape[:2]):
                raise UserError(
                    f"{name} has dtype {ids.dtype} and shape {tuple(ids.shape)}; give one integer per row of z"
                )
            labels.append(ids.long().expand(z.shape[:2]))
        if self.checks_ids and not torch.compiler.is_compiling():
            self._check_ids(*labels)
        term_labels = self._labels.get((y, s), lambda: make_labels(self.mode, *labels))
        return make_terms(self.mode, z, labels[0], labels[1], branches=self.branches, labels=term_labels)

    def _make_critic_terms(self, z: Tensor, y: Tensor, s: Tensor) -> list[Term]:
        """Return the terms of new latents; results that earlier terms cached with the labels are dropped."""
        self._labels.clear()
        return self._terms(z, y, s)

    def _check_ids(self, y: Tensor, s: Tensor) -> None:
        """Raise UserError unless y and s (P, B) are below n_classes and n_subjects."""
        if s.device.type != "cpu":
            if self._checked_on == s.device:
                return
            self._checked_on = s.device
        present = s >= 0
        for name, ids, sizes, size in (
            ("y", y[present], "n_classes", self.n_classes), ("s", s[present], "n_subjects", self.n_subjects),
        ):  # fmt: skip
            invalid = ids[(ids < 0) | (ids >= size)]
            if invalid.numel():
                raise UserError(
                    f"{name} contains {int(invalid[0])}, but {sizes} is {size}; number ids from 0 to {size - 1}, as "
                    "numpy.unique(ids, return_inverse=True) does"
                )


def _as_ids(name: str, ids: object, z: Tensor) -> Tensor:
    """Return ids as a tensor; arrays and lists are moved to the device of z."""
    if isinstance(ids, Tensor):
        return ids
    if isinstance(ids, np.ma.MaskedArray) and np.ma.is_masked(ids):
        raise UserError(f"{name} has {int(np.ma.getmaskarray(ids).sum())} masked values; leave these rows out")
    try:
        array = np.asarray(ids)
        if array.dtype.kind not in "iub":
            raise UserError(
                f"{name} is {_type_words(ids)} of {array.dtype}; give integers from 0, as "
                "numpy.unique(ids, return_inverse=True) returns"
            )
        return torch.as_tensor(array.astype(np.int64), device=z.device)
    except UserError:
        raise
    except (ValueError, TypeError) as error:
        raise UserError(f"{name} is {shown(ids)} ({one_line(error)}); give one integer per row") from None


def _type_words(value: object) -> str:
    return "a numpy array" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
