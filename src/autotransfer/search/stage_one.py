"""Stage one of a search: every setting on one fixed split, for a shortlist."""

from __future__ import annotations

from ..runs.run import Run, Tell
from ..runs.sqlite_errors import explain_errors_of_library
from ..settings import Setting
from .kinds import candidates_of, list_of
from .stages import shortlist
from .validation import finished_entries, measured_scores, validation_scores


def search_stage(run: Run, tell: Tell, *, shown: bool | None) -> list[Setting]:
    """Train every setting on one fixed split. Returns the shortlist of networks, the baseline first."""
    options, split = run.options, run.scored_split()
    apart = options.adaptation is not None  # networks of several kinds, each with the grid
    if options.search == "tpe":
        from .tpe import tpe_search

        with explain_errors_of_library(run.folder / "optuna.sqlite"):
            settings = tpe_search(run, tell, shown=shown)
    else:
        settings = candidates_of(run.prepared).networks
        run.add(run.entry("search", setting, *split, options.seed) for setting in settings)
        tell(f"stage one: {len(settings)} setting{'s' * (len(settings) != 1)} on one split")
        run.work(shown=shown)
    first = [entry for entry in finished_entries(run, settings, [split]) if entry.seed == options.seed]
    if options.rule == "average":
        scores = measured_scores(run, first, both=False)
    else:
        scores = validation_scores(first, run.groups, twins=False)
    by_key = {setting.key: setting for setting in settings}
    # A shortlist for every network: the best one must not crowd out the settings of another.
    kept = []
    for network in dict.fromkeys(list_of(setting, apart=apart) for setting in settings):
        kept += shortlist(scores, {k: s.method for k, s in by_key.items() if list_of(s, apart=apart) == network})
    return [by_key[key] for key in kept]
