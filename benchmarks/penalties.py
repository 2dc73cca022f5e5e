"""Tables and figure of docs/negative_result.md, and tables of the gain of each part of AutoTransfer.

The scores were computed by commands of commit b5a1b112. changes.csv has scores of one network with one change at a time
(`python -m benchmarks.one_change`), leaking.csv the leakage of its latent features (`benchmarks.leaking`), and
average/zero-shot/scores.csv and scores.csv have scores of runs of version 0.1.0 (`benchmarks.proof`).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pandas as pd

from autotransfer.words import score, signed

from .drawing import Arrow, draw_arrows, write_figure
from .evidence import Scores, collect_baselines, differences, read_scores, scores_by
from .field_tables import read_runs
from .inference import (
    MARGIN,
    SIGNIFICANT,
    all_values,
    equivalence,
    estimate_mean,
    mean_over_both,
    mean_over_data,
    mean_over_subjects,
)
from .markdown import markdown

PLAIN = {"marginal": "people", "conditional": "balanced"}  # mode -> batches of the network without a penalty
MEASURES = ["leakage", "score"]
ALIGNED = "EEGNet, Euclidean alignment"
# Names of the reference network, and of the network with published preprocessing
SHUFFLED_BATCHES, PUBLISHED = "shuffled", "as published"


@cache
def read_changes(folder: Path) -> dict[str, Scores]:
    """Return the scores of each change of changes.csv."""
    changes: dict[str, Scores] = scores_by(read_scores(folder, "changes"), "change", "dataset", "subject")
    return changes


@cache
def read_gains(folder: Path) -> dict[tuple[str, str, str], Scores]:
    """Return (method, mode, strength) -> score with the penalty minus the score without, in the same batches."""
    table, changes = read_scores(folder, "changes"), read_changes(folder)
    forms = {tuple(name.split()[:3]): name for name in table.loc[table["part"] == "penalties", "change"]}
    return {(method, mode, strength): differences(changes[name], changes[PLAIN[mode]])
            for (method, mode, strength), name in sorted(forms.items())}  # fmt: skip


def penalties_table(folder: Path) -> str:
    """Return each conditional penalty minus none with true and shuffled subjects, and its marginal form."""
    changes, gains, rows, n_true = read_changes(folder), read_gains(folder), list[list[str]](), 0
    shuffled = {tuple(name.split()[:3]): scores for name, scores in changes.items() if name.endswith(" shuffled")}
    for (method, mode, strength), true in gains.items():
        if mode != "conditional":
            continue
        control = differences(shuffled[method, mode, strength], changes[PLAIN[mode]])
        gain, only_true = mean_over_subjects(true), mean_over_subjects(differences(true, control))
        n_true += only_true.interval is not None and only_true.interval[0] > 0
        is_equivalent = equivalence(all_values(true)).p < SIGNIFICANT
        verdict = "equivalent" if is_equivalent else "lower" if gain.interval and gain.interval[1] < 0 else "open"
        plain = gains.get((method, "marginal", strength))
        rows.append([
            f"{method} {strength}", str(gain), verdict, signed(mean_over_subjects(control).value),
            str(only_true), str(mean_over_subjects(plain)) if plain else "–",
        ])  # fmt: skip
    heads = ["penalty, strength", "conditional minus none", f"against ± {score(MARGIN)}", "with shuffled subjects",
              "true minus shuffled", "marginal minus none"]  # fmt: skip
    found = f"{n_true} of {len(rows)} intervals of true minus shuffled subjects lie above 0."
    return f"{markdown(heads, rows)}\n{found}\n"


def summary(folder: Path) -> str:
    """Return sentences on the number of penalties that raise or lower the score."""
    forms = read_gains(folder)
    gains = {" ".join(key): estimate_mean(all_values(found)) for key, found in forms.items()}
    limits = [mean.interval for mean in gains.values() if mean.interval]
    n_above, n_below = sum(low > 0 for low, _ in limits), sum(high < 0 for _, high in limits)
    n_equivalent = sum(equivalence(all_values(found)).p < SIGNIFICANT for found in forms.values())
    best, worst = (choose(gains, key=lambda name: gains[name].value) for choose in (max, min))
    sizes = [len(subjects) for subjects in next(iter(forms.values())).values()]
    return (
        f"{len({key[0] for key in forms})} penalties were trained in {len(forms)} forms (mode and strength) on "
        f"{len(sizes)} data sets with {min(sizes)} to {max(sizes)} subjects, {sum(sizes)} in all, one seed each. "
        f"{n_above} of {len(gains)} 95 % intervals over subjects lie above no penalty, {n_below} lie below. "
        f"{n_equivalent} forms are equivalent to no penalty within ± {score(MARGIN)}. The highest difference is that "
        f"of {best}, {gains[best]}, the lowest that of {worst}, {gains[worst]}. Intervals are not corrected for the "
        "number of forms.\n"
    )


def leakage_changes(folder: Path) -> pd.DataFrame:
    """Return leakage and score minus those of no penalty, by method, mode and subjects, with equal weight of sets."""
    table = read_scores(folder, "leaking")
    keys = ["data", "test_subject"]
    plain = table[table["method"] == "none"].set_index(["mode", *keys])[MEASURES]
    changed = table[table["method"] != "none"].assign(batches=lambda t: t["mode"].map(PLAIN))
    changed = changed.join(plain.add_suffix("_plain"), on=["batches", *keys])
    for name in MEASURES:
        changed[name] -= changed.pop(f"{name}_plain")
    groups = ["method", "mode", "people"]
    return changed.groupby([*groups, "data"])[MEASURES].mean().groupby(groups).mean()


def leakage_table(folder: Path) -> str:
    """Draw and tabulate the changes of leakage and score by each penalty, with true and shuffled subjects."""
    table, changes = read_scores(folder, "leaking"), leakage_changes(folder)
    plain = table[table["method"] == "none"]
    methods = list(dict.fromkeys(changes.index.get_level_values("method")))
    points = {key: (float(row["leakage"]), float(row["score"])) for key, row in changes.to_dict("index").items()}
    arrows = {
        mode: [Arrow(method, points[method, mode, "shuffled"], points[method, mode, "true"]) for method in methods]
        for mode in PLAIN
    }
    drawing = draw_arrows(arrows, "leakage minus no penalty", "score minus no penalty")
    alt = "Change of leakage and of the score by 14 penalties, with shuffled subjects (open) and true subjects (filled)"
    sides = [(mode, who) for mode in PLAIN for who in ("true", "shuffled")]
    rows = [[method, *(", ".join(map(signed, points[method, *side])) for side in sides)] for method in methods]
    heads = ["leakage, score", *(f"{mode}, {who} subjects" for mode, who in sides)]
    removed = changes.xs("true", level="people")
    rank = removed["leakage"].corr(removed["score"], method="spearman")
    about = (
        f"On {table['data'].nunique()} data sets a probe recognizes the subject with balanced accuracy "
        f"{plain['leakage'].mean():.2f} without a penalty (chance {plain['chance'].mean():.2f}). Over the "
        f"{len(removed)} forms with true subjects, the rank correlation of the changes of leakage and of the score is "
        f"{rank:.2f}."
    )
    return f"{write_figure(folder, 'penalties', drawing, alt)}\n{about}\n\n{markdown(heads, rows)}"


def in_selection(folder: Path) -> str:
    """Return the gains of the ensemble, and of the procedure of the paper, if candidates have penalties."""
    average = scores_by(read_scores(folder / "average" / "zero-shot", "scores"), "pipeline", "dataset", "subject")
    table = read_scores(folder, "scores")
    chosen = scores_by(table[~table["control"]], "pipeline", "dataset", "subject")
    control = scores_by(table[table["control"]], "pipeline", "dataset", "subject")
    only_true = {d: s for d, s in chosen["nested"].items() if d in control["nested"]}
    compared = {
        "weighted ensemble with penalties, minus without": differences(average["nested"], average["nested_uncensored"]),
        "one selected setting, minus the best uncensored": differences(chosen["nested"], chosen["nested_uncensored"]),
        "one selected setting, true minus shuffled subjects": differences(only_true, control["nested"]),
    }
    rows = []
    for name, gaps in compared.items():
        means = [str(mean_over_subjects(gaps)), str(mean_over_both(gaps)), str(equivalence(all_values(gaps)))]
        rows.append([name, str(len(gaps)), str(len(all_values(gaps))), *means])
    heads = ["", "sets", "subjects", "over subjects", "sets, then subjects", f"90 %, test against ± {score(MARGIN)}"]
    one = {d: mean_over_subjects({d: subjects}) for d, subjects in list(compared.values())[1].items()}
    most = max(one, key=lambda dataset: one[dataset].value)
    return f"{markdown(heads, rows)}\nThe largest gain of one selected setting is that on {most}, {one[most]}.\n"


# ---- parts of AutoTransfer -------------------------------------------------------------------------------------------


def part_gains(folder: Path) -> dict[str, Scores]:
    """Return the gain of each part over the same procedure without it."""
    average = scores_by(read_scores(folder / "average" / "zero-shot", "scores"), "pipeline", "dataset", "subject")
    known = average["nested"].keys()
    changes = {name: {d: scores[d] for d in scores if d in known} for name, scores in read_changes(folder).items()}
    trained, published = changes[SHUFFLED_BATCHES], changes[PUBLISHED]
    return {
        "training at a constant rate with averaged weights": differences(published, average["none"]),
        "preprocessing in units of the training subjects, with scale and log power": differences(trained, published),
        "a penalty: conditional MMD of strength 1 in balanced batches": differences(
            changes["mmd conditional 1 median"], changes["balanced"]
        ),
        "an augmentation: one channel in ten masked": differences(changes["channel_mask 0.1"], trained),
        "averaging the networks of one chosen candidate": differences(average["choosing"], trained),
        "averaging all candidates, networks and linear models": differences(average["nested"], average["choosing"]),
    }


def parts_table(folder: Path) -> str:
    """Return a table of the gain of each part."""
    rows = [
        [name, str(len(gaps)), str(len(all_values(gaps))), str(mean_over_subjects(gaps)), str(mean_over_both(gaps))]
        for name, gaps in part_gains(folder).items()
    ]
    return markdown(["part", "sets", "subjects", "over subjects", "sets, then subjects"], rows)


def changes_table(folder: Path) -> str:
    """Return augmentations and penalties on sessions minus the same network without them."""
    table, changes = read_scores(folder, "changes"), read_changes(folder)
    shown = table[table["part"].isin(["augmentations", "nuisances"])].drop_duplicates("change")
    rows = []
    for change, reference in zip(shown["change"], shown["reference"], strict=True):
        gaps = differences(changes[change], changes[reference])
        rows.append([change, str(len(gaps)), str(len(all_values(gaps))), str(mean_over_data(gaps))])
    return markdown(["change", "sets", "subjects", "difference"], sorted(rows))


def explain_alignment(folder: Path) -> str:
    """Return sentences on the part of the difference to aligned EEGNet that is due to training and preprocessing."""
    training, preprocessing = list(part_gains(folder).values())[:2]
    both = {d: {s: v + preprocessing[d][s] for s, v in gaps.items()} for d, gaps in training.items()}
    aligned = {
        d: b.subtract_from(ours)
        for d, ours in read_runs(folder)["transductive"].items()
        for b in collect_baselines(folder, d, "transductive")
        if b.name.startswith(ALIGNED) and d in both
    }
    return (
        "The aligned EEGNet is trained and preprocessed as published. On the "
        f"{len(both)} data sets on which both were measured, AutoTransfer is {mean_over_subjects(aligned)} above the "
        f"aligned EEGNet over subjects. AutoTransfer's training and preprocessing alone add {mean_over_subjects(both)} "
        "to an EEGNet without alignment (version 0.1.0). The comparison therefore does not show what alignment is "
        "worth.\n"
    )


PARTS = {
    "parts": parts_table, "changes": changes_table,
    "aligned": explain_alignment, "penalties_summary": summary, "penalties": penalties_table,
    "penalties_leakage": leakage_table, "penalties_selected": in_selection,
}  # fmt: skip
