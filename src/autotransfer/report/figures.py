"""All figures of the page, in its order."""

from __future__ import annotations

from .answering_figures import abstention, coverage
from .average_figures import contributions, reliability, shares
from .latent_figures import latent_by_class, latent_by_subject, leakage
from .mistake_figures import confusion, reliability_by_person
from .person_figures import adaptation, labels, windows_seen
from .plot import Figure
from .result_figures import by_subject, differences, glance, results
from .search_figures import candidates, tried
from .stage_figures import stages
from .summary import Summary
from .training_figures import curves

SECTIONS = {
    "answer": (glance,),
    "stages": (stages,),
    "results": (results, by_subject, differences),
    "mistakes": (confusion, reliability, reliability_by_person),
    "answering": (coverage, abstention),
    "groups": (),
    "average": (shares, contributions),
    "person": (labels, adaptation, windows_seen),
    "search": (tried, candidates),
    "people": (leakage, latent_by_subject, latent_by_class),
    "training": (curves,),
}


def figures(summary: Summary) -> dict[str, list[Figure]]:
    """Section -> its figures; one that the run has no data for is left out."""
    made = {section: [make(summary) for make in makers] for section, makers in SECTIONS.items()}
    return {section: [figure for figure in drawn if figure is not None] for section, drawn in made.items()}
