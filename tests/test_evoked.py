"""Latents of evoked responses against pyRiemann's covariances."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import logm
from sklearn.covariance import oas

from autotransfer.model.evoked import EvokedOptions
from test_templates import SIZE, in_pieces, trials


def test_latents_are_logarithms_of_pyriemanns_covariances() -> None:
    """Of filtered signals below the mean responses, every row in units of its deviation."""
    estimation = pytest.importorskip("pyriemann.estimation")
    X, y = trials()
    options = EvokedOptions(template_filters=2)
    net = options.stack(SIZE, 2, [0, 1]).double()
    net.fit([1], in_pieces(X, y))
    code = net.raw_latents(X[None, :4], slice(1, 2))[0]
    assert code.shape == (4, options.latent_dim(SIZE)) == (4, 12 + 78)
    theirs = estimation.XdawnCovariances(nfilter=2, estimator="scm", xdawn_estimator="oas").fit(X.numpy(), y.numpy())
    covariances = theirs.transform(X[:4].numpy())
    upper = np.triu_indices(12)
    for own, covariance, window in zip(code.numpy(), covariances, X[:4], strict=True):
        rows = np.concatenate([net.templates[1].numpy(), net.filters[1].numpy() @ window.numpy()])
        unit = (rows - rows.mean(1, keepdims=True)) / rows.std(1, keepdims=True)
        np.testing.assert_allclose(own[:12], np.log(rows.std(1)), atol=1e-5)
        log = logm(oas(unit.T)[0])
        weight = np.where(upper[0] == upper[1], 1, np.sqrt(2))
        np.testing.assert_allclose(own[12:], weight * log[upper], atol=1e-5)
        # Theirs, in the same units: filters have other signs and lengths there, and shrinkage is not theirs.
        size = np.sqrt(covariance.diagonal())
        np.testing.assert_allclose(np.abs(covariance / np.outer(size, size)), np.abs(unit @ unit.T / 40), atol=0.02)
