"""Planted defects that the tests must catch: `make mutants` plants each in a copy of the project and prints a table.

A mutant replaces one piece of text in one file. The tests that watch privacy are run on the copy first and the rest of
the fast suite only if they notice nothing. A mutant that survives is a defect of the tests.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPIED = (
    "conddp",
    "tests",
    "docs",
    "docs_tools",
    "examples",
    "benchmarks",
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "VISION.md", "CITATION.cff"),
    *("mkdocs.yml", "pyproject.toml", "constraints.txt", "Makefile"),
)

WATCHING = (
    "tests/privacy",
    "tests/auditing",
    "tests/test_composition.py",
    "tests/test_release.py",
    "tests/test_ledger.py",
    "tests/test_ledger_file.py",
    "tests/test_total.py",
    "tests/test_randomizers.py",
    "tests/test_label_prior.py",
    "tests/test_accounting.py",
    "tests/test_heads.py",
    "tests/test_saving.py",
    "tests/test_evidence.py",
    "tests/test_cache.py",
    "tests/hostile",
    "tests/test_estimators.py",
    "tests/test_seeded_fits.py",
    "tests/test_units.py",
    "tests/test_weights.py",
    "tests/test_several.py",
    "tests/test_ranks.py",
    "tests/test_lost_ranks.py",
)


# Where a defect of a file is noticed soonest; only the order in which tests are run depends on it.
FIRST = {
    "privacy/release.py": (
        "tests/test_release.py",
        "tests/test_randomizers.py",
        "tests/test_label_prior.py",
        "tests/test_fused_steps.py",
    ),
    "privacy/bounded_sum.py": ("tests/test_release.py",),
    "privacy/noise.py": (
        "tests/test_noise.py",
        "tests/test_release.py",
        "tests/test_fused.py",
        "tests/test_fused_steps.py",
    ),
    "privacy/randomness.py": ("tests/test_randomness.py", "tests/test_release.py"),
    "privacy/checkpoint.py": ("tests/test_checkpoint.py",),
    "heads/embeddings.py": ("tests/test_embeddings.py",),
    "heads/kernels.py": ("tests/test_embeddings.py", "tests/test_fused.py"),
    "heads/fused.py": ("tests/test_fused.py",),
    "heads/fused_linear.py": ("tests/test_fused.py",),
    "heads/fused_network.py": ("tests/test_fused.py",),
    "privacy/fused_noise.py": ("tests/test_fused.py",),
    "features/scaled_rows.py": ("tests/test_sparse.py",),
    "data/private_cells.py": ("tests/test_private_cells.py",),
    **{
        f"evaluation/{name}.py": ("tests/privacy/test_evaluation.py", "tests/test_evaluation.py")
        for name in (
            "moves",
            "moments",
            "spreads",
            "influences",
            "run",
            "predicted",
            "splitting",
            "private_predictions",
        )
    },
    "privacy/sides.py": ("tests/test_sides.py",),
    "data/scaling.py": ("tests/privacy/test_sensitivity.py", "tests/privacy/test_whole_fits.py"),
    "newton/private_columns.py": ("tests/privacy/test_sensitivity.py", "tests/privacy/test_whole_fits.py"),
    "privacy/selection.py": ("tests/test_selection.py",),
    "training/ranks.py": ("tests/test_ranks.py",),
    "training/loop.py": ("tests/privacy/test_sensitivity.py", "tests/test_ranks.py", "tests/test_fused_steps.py"),
    "training/fused_steps.py": ("tests/test_fused_steps.py",),
    "training/sampling.py": ("tests/test_sampling.py",),
    "algorithms/descent.py": ("tests/test_ranks.py",),
    "algorithms/dividing.py": ("tests/test_ranks.py",),
    "training/batches.py": ("tests/test_units.py", "tests/test_ranks.py"),
    "algorithms/tuned.py": ("tests/test_tuned.py", "tests/test_unit_ledger.py"),
    "algorithms/algorithm.py": (
        "tests/privacy/test_release.py",
        "tests/test_estimators.py",
        "tests/test_checkpoint.py",
    ),
    "algorithms/preparation.py": ("tests/test_estimators.py", "tests/test_checkpoint.py", "tests/test_ranks.py"),
    "algorithms/identity.py": ("tests/test_estimators.py",),
    "algorithms/randomized_labels.py": ("tests/test_unit_ledger.py", "tests/privacy/test_release.py"),
    "estimators/regressor.py": ("tests/test_estimators.py",),
    "privacy/ledger.py": (
        "tests/test_ledger.py",
        "tests/test_total.py",
        "tests/test_ledger_file.py",
        "tests/test_unit_ledger.py",
        "tests/test_checkpoint.py",
    ),
    "privacy/ledger_file.py": ("tests/test_ledger_file.py",),
    "privacy/chain.py": ("tests/test_ledger.py", "tests/test_ledger_file.py"),
    "privacy/total.py": ("tests/test_total.py",),
    "privacy/events.py": ("tests/privacy/test_release.py", "tests/test_total.py"),
    "privacy/locked.py": ("tests/privacy/test_release.py",),
    "privacy/accounting.py": ("tests/test_accounting.py",),
    "privacy/transcript.py": ("tests/test_composition.py",),
    "algorithms/task.py": ("tests/privacy/test_release.py",),
    "models/saving.py": ("tests/test_saving.py",),
    "models/evidence.py": ("tests/test_evidence.py",),
    "data/parts.py": ("tests/privacy/test_release.py",),
    "training/clipping.py": ("tests/test_heads.py", "tests/privacy/test_whole_fits.py"),
    "newton/release.py": (
        "tests/privacy/test_sensitivity.py",
        "tests/privacy/test_blocks.py",
        "tests/privacy/test_units.py",
    ),
    "newton/fused_residuals.py": ("tests/privacy/test_fused_residuals.py", "tests/privacy/test_rounded_rows.py"),
    "newton/joint_run.py": ("tests/test_trials.py",),
    "_fused.py": ("tests/test_kernels.py",),
    "data/threads.py": ("tests/test_passes.py",),
    "features/unit_moves.py": ("tests/privacy/test_units.py",),
    "features/public_rows.py": ("tests/privacy/test_sensitivity.py", "tests/privacy/test_rounded_rows.py"),
    "features/grouped_rows.py": (
        "tests/privacy/test_grouped_rows.py",
        "tests/test_sparse.py",
        "tests/privacy/test_rounded_rows.py",
    ),
    "features/conditioned_rows.py": ("tests/privacy/test_grouped_rows.py", "tests/test_sparse.py"),
    "data/units.py": ("tests/privacy/test_units.py",),
    "data/records.py": ("tests/privacy/test_weights.py", "tests/test_weights.py"),
    "features/row_weights.py": ("tests/privacy/test_weights.py", "tests/test_weights.py"),
    "algorithms/several.py": ("tests/test_several.py",),
    "algorithms/request.py": ("tests/test_several.py",),
}


@dataclass(frozen=True)
class Mutant:
    """One planted defect."""

    name: str
    file: str
    old: str
    new: str

    def plant(self, root: Path) -> None:
        """Change the file below a folder.

        Raises
        ------
        ValueError
            If the text is not there exactly once: the list must follow the code.
        """
        path = root / "conddp" / self.file
        text = path.read_text(encoding="utf-8")
        if text.count(self.old) != 1:
            raise ValueError(f"'{self.name}': the text to change is {text.count(self.old)} times in {self.file}.")
        path.write_text(text.replace(self.old, self.new), encoding="utf-8")


UNPAID = "records = task.locked_records._Locked__content  # "

MUTANTS = (
    # Sensitivity
    Mutant(
        "replacing a record counted as removing it",
        "privacy/neighbouring.py",
        "factor = 2.0 if self is Neighbouring.REPLACE else 1.0",
        "factor = 1.0",
    ),
    Mutant(
        "descent: noise for c instead of 2c",
        "training/loop.py",
        "sensitivity = neighbouring.sensitivity(clip_norm)",
        "sensitivity = clip_norm",
    ),
    Mutant(
        "private rows treated as public",
        "algorithms/private_directions.py",
        "return PrivateRows.of(public_rows, private, moments)",
        "return WhitenedRows(**vars(PrivateRows.of(public_rows, private, moments)))  # type: ignore[return-value]",
    ),
    Mutant(
        "every release taken for one of public rows",
        "newton/release.py",
        "if not isinstance(rows, PublicRows):",
        "if not hasattr(rows, 'start_pass'):",
    ),
    Mutant(
        "newton: half the distance between the ends of a residual",
        "newton/release.py",
        "distances = highest - lowest",
        "distances = (highest - lowest) / 2",
    ),
    Mutant(
        "newton: the mean square forgotten in the sensitivity",
        "newton/release.py",
        "sensitivity = math.hypot(max(farthest, query.clip_norm), query.square_weight * query.clip_norm)",
        "sensitivity = max(farthest, query.clip_norm)",
    ),
    Mutant(
        "evaluation: the longest move sought at the ends only",
        "evaluation/moves.py",
        "turn = np.minimum(_find_turn(end, linear, weights), other)",
        "turn = np.zeros_like(other)",
    ),
    Mutant(
        "evaluation: errors of one sign only",
        "evaluation/moves.py",
        "    if neighbouring is Neighbouring.REPLACE:\n        for end",
        "    if neighbouring is None:\n        for end",
    ),
    Mutant(
        "evaluation: errors per bin forgotten in the sensitivity",
        "evaluation/moves.py",
        "linear = weights.error**2 + (weights.product * deviations) ** 2 + weights.bins**2",
        "linear = weights.error**2 + (weights.product * deviations) ** 2",
    ),
    Mutant(
        "evaluation: records of a unit counted once",
        "evaluation/moves.py",
        "return float(predicted.add_up_units(moves).max())",
        "return float(moves.max())",
    ),
    Mutant(
        "evaluation: influences of a unit counted once",
        "evaluation/spreads.py",
        "tops = np.array([predicted.add_up_units(each.bound(predicted)) ** 2 for each in influences])",
        "tops = np.array([predicted.add_up_units(each.bound(predicted) ** 2) for each in influences])",
    ),
    Mutant(
        "evaluation: an influence bounded at the ends of the error only",
        "evaluation/influences.py",
        "ends = (high, -low, np.zeros_like(high), np.clip(turn, -low, high))",
        "ends = (high,)",
    ),
    Mutant(
        "evaluation: bins of influences forgotten in the sensitivity",
        "evaluation/spreads.py",
        "sensitivity = float(np.sqrt((squared.sum(axis=0) + beside).max()))",
        "sensitivity = float(np.sqrt(squared.max()))",
    ),
    Mutant(
        "evaluation: each release at the cost of both",
        "evaluation/run.py",
        "mu * math.sqrt(1 - MOMENTS_SHARE)",
        "mu",
    ),
    Mutant(
        "evaluation: private predictions taken for public",
        "evaluation/private_predictions.py",
        "of_error = bound_square(one, one, one * error**2",
        "of_error = bound_square(one, 0 * one, one * error**2",
    ),
    Mutant(
        "evaluation: moves of private labels forgotten",
        "evaluation/private_predictions.py",
        "np.sqrt(of_error + of_label)[0]",
        "np.sqrt(of_error)[0]",
    ),
    Mutant(
        "held-out records that are training records too",
        "evaluation/splitting.py",
        "training, held_out = (",
        "sides = (records, sides[1])\n    training, held_out = (",
    ),
    Mutant(
        "sides of different splits taken for disjoint",
        "privacy/sides.py",
        "splits.setdefault(side.split, {})",
        "splits.setdefault('', {})",
    ),
    Mutant(
        "a side of a split that costs nothing beside all records",
        "privacy/sides.py",
        "[*common, *(each for side in chosen for each in side)]",
        "[*(common or (each for side in chosen for each in side))]",
    ),
    Mutant(
        "moments: half the sensitivity",
        "newton/private_columns.py",
        "return r * x * math.sqrt(",
        "return 0.5 * r * x * math.sqrt(",
    ),
    Mutant(
        "moments: half the diameter",
        "newton/private_columns.py",
        "x = min(diameter / r, 2.0,",
        "x = min(diameter / r / 2, 2.0,",
    ),
    Mutant(
        "moments: collinear moves forgotten",
        "newton/private_columns.py",
        "max(2 - x**2 / 2, (2 - x) ** 2))",
        "(2 - x**2 / 2))",
    ),
    Mutant(
        "categories: the length of one level forgotten",
        "data/scaling.py",
        "return math.sqrt(len(domain) - center)",
        "return 1.0",
    ),
    Mutant(
        "categories: half the distance between two levels",
        "data/scaling.py",
        "moves = (2 * len(each) if isinstance(each, Categories) else 12 for each in domains)",
        "moves = (len(each) / 2 if isinstance(each, Categories) else 12 for each in domains)",
    ),
    Mutant(
        "categories: undeclared values lie far out",
        "data/scaling.py",
        "features = np.vstack([coding, np.zeros(coding.shape[1])])",
        "features = np.vstack([coding, 2 * coding[0]])",
    ),
    Mutant(
        "categories: levels read off the data",
        "data/private_cells.py",
        "values = _read_categories(cells, domain)",
        "values = _read_categories(cells, Categories(tuple(sorted({str(each) for each in cells.to_list()}))))",
    ),
    Mutant(
        "categories: an undeclared value is refused",
        "data/private_cells.py",
        "return NONE_DECLARED if place is None else float(place)",
        "return math.nan if place is None else float(place)",
    ),
    Mutant(
        "gaps: filled by the mean of the column",
        "data/private_cells.py",
        "return np.where(missing, values.dtype.type(fill), values)",
        "return np.where(missing, np.nanmean(values), values)",
    ),
    Mutant(
        "gaps: a cell in the message",
        "data/private_cells.py",
        "f\"column '{column.name}' has gaps, and",
        "f\"column '{column.name}' has gaps beside {values[~missing][:1]}, and",
    ),
    Mutant(
        "dates: a cell in the message",
        "data/private_cells.py",
        "f\"the bounds of column '{column.name}' are dates, but it holds something else.",
        "f\"the bounds of column '{column.name}' are dates, but it holds {cells[0]}.",
    ),
    Mutant(
        "moments: public rows not cut",
        "newton/private_columns.py",
        "cut = np.minimum(1.0, length / ",
        "cut = 1.0 + 0.0 * np.minimum(1.0, length / ",
    ),
    Mutant(
        "variances: the mean row instead of the longest",
        "newton/residual_variances.py",
        "max(float(moves.max())",
        "max(float(moves.mean())",
    ),
    Mutant(
        "variances: residuals not clamped",
        "newton/residual_variances.py",
        "np.minimum(residuals**2, limit)",
        "residuals**2",
    ),
    Mutant(
        "variances: paid for by nothing",
        "algorithms/cond_newton.py",
        "mu * math.sqrt(1 - variance_fraction)",
        "mu",
    ),
    Mutant(
        "one-shot: the mean row instead of the longest",
        "algorithms/one_shot.py",
        "longest = float(np.sqrt((V * V).sum(axis=1)).max())",
        "longest = float(np.sqrt((V * V).sum(axis=1)).mean())",
    ),
    Mutant(
        "mean: half the range of a label",
        "algorithms/private_mean.py",
        "sensitivity = bound_label_move(task.schema.label_bounds, task.neighbouring)",
        "sensitivity = 0.5 * bound_label_move(task.schema.label_bounds, task.neighbouring)",
    ),
    Mutant(
        "histogram: a replaced label leaves its cell but enters none",
        "labels/prior.py",
        "sensitivity=2.0",
        "sensitivity=1.0",
    ),
    Mutant(
        "laplace: noise for half the range",
        "labels/randomizers.py",
        "released = release(scaled, sensitivity=1.0,",
        "released = release(scaled, sensitivity=0.5,",
    ),
    # Embeddings
    Mutant(
        "embeddings: products of equal bins left out",
        "heads/embeddings.py",
        "exact = square_by_code(xp, codes, xp.reshape(look_up(xp, embedded, repeated), (-1, c, w)), plain)",
        "exact = plain",
    ),
    Mutant(
        "embeddings: norms as they are rounded",
        "heads/embeddings.py",
        "norms = xp.sqrt(squared) * (1.0 + self._margin(xp, dtype, coded))",
        "norms = xp.sqrt(squared)",
    ),
    Mutant(
        "embeddings: rounding of float32 sums not covered",
        "heads/embeddings.py",
        "bound = 0.0 if dtype == precision else bound_sum_rounding(self.xp, dtype, per_unit=per_unit)",
        "bound = 0.0",
    ),
    Mutant(
        "embeddings: vectors of equal bins that cancel may be long",
        "heads/embeddings.py",
        "squared[repeated] = xp.maximum(total, LARGEST_CANCELLATION * plain)",
        "squared[repeated] = total",
    ),
    Mutant(
        "embeddings: float32 sums of a unit in one block",
        "heads/kernels.py",
        "blocks = 1 if per_unit == 1 else 2 + per_unit // b",
        "blocks = 1",
    ),
    Mutant(
        "embeddings: float32 sums of more records than the bound is for",
        "heads/kernels.py",
        "n, b = left.shape[0], RECORDS_PER_SUM",
        "n, b = left.shape[0], left.shape[0]",
    ),
    Mutant(
        "scaled rows: norms without the constant",
        "features/scaled_rows.py",
        "return np.sqrt(squares.sum(axis=1) + (self.constant or 0.0) ** 2)",
        "return np.sqrt(squares.sum(axis=1))",
    ),
    # Rows that are never formed
    Mutant(
        "never formed: norms of other groups",
        "features/grouped_rows.py",
        "return np.sqrt(self.squared_norms @ self.group_weights)",
        "return np.sqrt(self.squared_norms @ self.group_weights[::-1])",
    ),
    Mutant(
        "never formed: different weights within a group",
        "features/grouped_rows.py",
        "if not np.array_equal(self.spread(of_groups), direction_weights):",
        "if False:",
    ),
    Mutant(
        "never formed: a unit bounded by its longest record",
        "features/grouped_rows.py",
        "together = np.bincount(units.codes, weights=lengths, minlength=units.num_units)",
        "together = np.full(units.num_units, lengths.max())",
    ),
    Mutant(
        "never formed: norms of units without the weights of directions",
        "features/grouped_rows.py",
        "lengths = distances * np.sqrt(self.squared_norms @ self.get_group_weights(direction_weights))",
        "lengths = distances * np.sqrt(self.squared_norms @ self.get_group_weights(direction_weights) / 2)",
    ),
    Mutant(
        "never formed: norms of the last directions of a group",
        "features/conditioned_rows.py",
        "squared[:, group] += ",
        "squared[:, group] = ",
    ),
    Mutant(
        "never formed: norms without the offset",
        "features/conditioned_rows.py",
        "rows += offset\n",
        "rows += 0.0\n",
    ),
    Mutant(
        "never formed: columns shifted, but not the offset",
        "features/conditioned_rows.py",
        "left = offset - (origin - stored) @ matrix",
        "left = offset - origin @ matrix",
    ),
    Mutant(
        "never formed: rounding not covered in newton",
        "newton/release.py",
        "sensitivity += summed.rounding",
        "sensitivity += 0.0 * summed.rounding",
    ),
    Mutant(
        "never formed: rounding not covered in descent",
        "training/loop.py",
        "together *= 1.0 + inputs.bound_rounding(per_unit, parameters.dtype) + rounding_elsewhere",
        "together *= 1.0",
    ),
    Mutant(
        "never formed: rounding of one block only",
        "features/conditioned_rows.py",
        "magnitudes = sum(sum_magnitudes(self.get_columns(span), limits[span]) for span in list_blocks(len(self)))",
        "magnitudes = [sum_magnitudes(self.get_columns(span), limits[span]) for span in list_blocks(len(self))][-1]",
    ),
    # The compiled kernel of Newton steps, and threads
    Mutant(
        "kernel: residuals not clamped from above",
        "newton/fused_residuals.py",
        "factor = residual if residual <= limit else limit",
        "factor = residual",
    ),
    Mutant(
        "kernel: labels beyond their range",
        "newton/fused_residuals.py",
        "label = label if label < high else high",
        "label = label if label < 2 * high else 2 * high",
    ),
    Mutant(
        "kernel: squares without their limit",
        "newton/fused_residuals.py",
        "term = term if term <= limit_of_square else limit_of_square",
        "term = term if term <= 2 * limit_of_square else limit_of_square",
    ),
    Mutant(
        "kernel: half of the distance between the ends",
        "newton/fused_residuals.py",
        "distance = highest - lowest",
        "distance = (highest - lowest) / 2",
    ),
    Mutant(
        "kernel: the last move instead of the largest",
        "newton/fused_residuals.py",
        "if move > farthest or move != move:",
        "if True:",
    ),
    Mutant(
        "kernel: a move that is NaN forgotten",
        "newton/fused_residuals.py",
        "if move > farthest or move != move:",
        "if not move <= farthest:",
    ),
    Mutant(
        "kernel: weights left out",
        "newton/fused_residuals.py",
        "factors[i] *= weight",
        "factors[i] *= 1.0",
    ),
    # Newton steps of several fits together
    Mutant(
        "together: residuals not clamped",
        "newton/joint_run.py",
        "totals += np.clip(residuals, -limits, limits) @ block",
        "totals += residuals @ block",
    ),
    Mutant(
        "together: labels beyond their range",
        "newton/joint_run.py",
        "np.clip(label[:, span], *label_range)",
        "label[:, span]",
    ),
    Mutant(
        "together: squares without their limit",
        "newton/joint_run.py",
        "np.minimum(residuals**2, square_limits**2)",
        "(residuals**2)",
    ),
    Mutant(
        "together: half of the distance between the ends",
        "newton/joint_run.py",
        "moves = high - low if",
        "moves = (high - low) / 2 if",
    ),
    Mutant(
        "together: moves of the last block only",
        "newton/joint_run.py",
        "farthest = np.maximum(farthest, (moves * norms).max(axis=1))",
        "farthest = (moves * norms).max(axis=1)",
    ),
    Mutant(
        "together: the smallest move",
        "newton/joint_run.py",
        "(moves * norms).max(axis=1)",
        "(moves * norms).min(axis=1)",
    ),
    Mutant(
        "together: a move that is NaN is not bounded",
        "newton/joint_run.py",
        "float(far) if far <= limit else limit",
        "float(far)",
    ),
    Mutant(
        "together: weights left out",
        "newton/joint_run.py",
        "and rows.weights is None",
        "and rows is not None",
    ),
    Mutant(
        "together: the noise of the first fit for all",
        "newton/joint_run.py",
        "release_sums(summed, rows, each.query, mu=each.mu, neighbouring=neighbouring, curator=start.curator)",
        "release_sums(summed, rows, each.query, mu=each.mu, neighbouring=neighbouring, curator=starts[0].curator)",
    ),
    Mutant(
        "together: the budget of the last fit for all",
        "newton/joint_run.py",
        "release_sums(summed, rows, each.query, mu=each.mu, neighbouring=neighbouring, curator=start.curator)",
        "release_sums(summed, rows, each.query, mu=questions[-1].mu, neighbouring=neighbouring, curator=start.curator)",
    ),
    Mutant(
        "together: the labels of the first fit for all",
        "newton/joint_run.py",
        "all(each is first for each in labels)",
        "any(each is first for each in labels)",
    ),
    Mutant(
        "together: rows of different fits taken for the same",
        "newton/joint_run.py",
        "by_rows.setdefault(id(each.rows), {})",
        "by_rows.setdefault(each.rows.num_records, {})",
    ),
    Mutant(
        "threads: blocks added as they come",
        "data/threads.py",
        "sums = waiting.popleft().result()",
        "sums = waiting.pop().result()",
    ),
    # Units of several records
    Mutant(
        "units: one record of a unit instead of all",
        "features/unit_moves.py",
        "pairs = np.abs(part @ part.transpose(0, 2, 1)).sum(axis=(1, 2))",
        "pairs = (part**2).sum(axis=2).max(axis=1)",
    ),
    Mutant(
        "units: records of a unit taken for orthogonal",
        "features/unit_moves.py",
        "pairs = np.abs(part @ part.transpose(0, 2, 1)).sum(axis=(1, 2))",
        "pairs = (part**2).sum(axis=(1, 2))",
    ),
    Mutant(
        "units: signs that cancel",
        "features/unit_moves.py",
        "pairs = np.abs(part @ part.transpose(0, 2, 1)).sum(axis=(1, 2))",
        "pairs = np.abs((part @ part.transpose(0, 2, 1)).sum(axis=(1, 2)))",
    ),
    Mutant(
        "units: the eigenvalue without the sum of lengths",
        "features/unit_moves.py",
        "np.sqrt(np.maximum(total * largest, 0.0))",
        "np.sqrt(np.maximum(lengths.max(axis=1) * largest, 0.0))",
    ),
    Mutant(
        "units: the mean square of one record",
        "newton/release.py",
        "beside = query.square_weight * query.clip_norm * weights.unit_totals",
        "beside = query.square_weight * query.clip_norm * weights.of_units",
    ),
    Mutant(
        "units: private rows bounded as one record",
        "newton/release.py",
        "most = max(1.0, weights.largest_total) * math.hypot(",
        "most = math.hypot(",
    ),
    Mutant(
        "units: moments bounded as one record",
        "newton/private_columns.py",
        "sensitivity *= 1.0 if weights is None else max(1.0, weights.largest_total)",
        "sensitivity *= 1.0",
    ),
    Mutant(
        "units: weights forgotten in the sum",
        "newton/release.py",
        "return self.rows.sum_rows(clamped * self.weights),",
        "return self.rows.sum_rows(clamped),",
    ),
    Mutant(
        "units: descent bounded as one record",
        "training/loop.py",
        "together = 1.0 if weights is None else max(1.0, weights.largest_total)",
        "together = 1.0",
    ),
    Mutant(
        "units: descent forgets the weights",
        "training/clipping.py",
        "clamped = clamped * weights",
        "clamped = clamped * 1.0",
    ),
    Mutant(
        "units: the mean bounded as one record",
        "algorithms/private_mean.py",
        "sensitivity, total_weight = sensitivity * weights.largest_total, weights.total",
        "total_weight = weights.total",
    ),
    Mutant(
        "units: one-shot bounded as one record",
        "algorithms/one_shot.py",
        "longest = bound_largest_move(V, weights.units, beside=np.zeros(weights.units.num_units))",
        "longest = float(np.sqrt((V * V).sum(axis=1)).max())",
    ),
    Mutant(
        "units: the whole of epsilon for every label",
        "algorithms/randomized_labels.py",
        "per_unit = 1 if task.units is None else task.units.largest",
        "per_unit = 1",
    ),
    Mutant(
        "units: labels of a unit counted once",
        "privacy/release.py",
        "self._counts.append(release.count * times)",
        "self._counts.append(times)",
    ),
    Mutant(
        "units: records beyond the declared maximum are used",
        "data/units.py",
        "kept = np.flatnonzero(self.within < self.max_rows)",
        "kept = np.arange(len(self))",
    ),
    Mutant(
        "units: records sampled one by one",
        "training/batches.py",
        "drawn = self.units.list_records(drawn)",
        "drawn = np.flatnonzero(self.sampler.generator.random(len(self.units)) < self.sampler.sampling_probability)",
    ),
    # Compiled kernels
    Mutant(
        "kernels: limits of another norm",
        "heads/fused.py",
        "limits = np.ascontiguousarray(records.clip_norm / records.row_norms)",
        "limits = np.ascontiguousarray(records.clip_norm / np.sqrt(records.row_norms))",
    ),
    Mutant(
        "kernels: rounded rows clipped by the norms of the exact ones",
        "heads/fused.py",
        "row_norms=np.maximum(norms, self.smallest_norm)",
        "row_norms=self.row_norms",
    ),
    Mutant(
        "kernels: whether to round depends on private columns",
        "heads/fused.py",
        "if self.private is not None or self.public.nbytes < ROUNDED_FROM",
        "if self.public.nbytes < ROUNDED_FROM",
    ),
    Mutant(
        "kernels: all configurations clipped as the first one is",
        "training/clipping.py",
        "weights, float(clip_norm[k]), SMALLEST_NORM",
        "weights, float(clip_norm[0]), SMALLEST_NORM",
    ),
    Mutant(
        "kernels: wider limits for few columns",
        "heads/fused_linear.py",
        "limit, residual = limits[i], label[i] - (low + high)",
        "limit, residual = 2.0 * limits[i], label[i] - (low + high)",
    ),
    Mutant(
        "kernels: wider limits for columns",
        "heads/fused_linear.py",
        "limit, residual = most[i], rest[i]",
        "limit, residual = 2.0 * most[i], rest[i]",
    ),
    Mutant(
        "kernels: wider limits for rows",
        "heads/fused_linear.py",
        "limit, residual = limits[place], label[place] - buffer[i]",
        "limit, residual = 2.0 * limits[place], label[place] - buffer[i]",
    ),
    Mutant(
        "kernels: wider limits for sparse rows",
        "heads/fused_linear.py",
        "limit, residual = limits[place], label[place] - predicted",
        "limit, residual = 2.0 * limits[place], label[place] - predicted",
    ),
    Mutant(
        "kernels: the last record counted four times",
        "heads/fused_linear.py",
        "residual = residual if residual == residual and i <= end else 0.0",
        "residual = residual if residual == residual else 0.0",
    ),
    Mutant(
        "kernels: damaged files are loaded",
        "_fused.py",
        "if sealed != self._digest():",
        "if sealed != self._digest() and not sealed:",
    ),
    Mutant(
        "kernels: wrong results of examples are accepted",
        "_fused.py",
        "is_right = self.is_right(compiled)",
        "is_right = self.is_right(compiled) or True",
    ),
    Mutant(
        "kernels: settings do not count for names of files",
        "_fused.py",
        "self._any_order, sorted(FAST_MATH), sys.version_info[:2]",
        "self._any_order, sys.version_info[:2]",
    ),
    Mutant(
        "kernels: noise need not have the same bits",
        "_fused.py",
        "return one.tobytes() == other.tobytes()",
        "return np.allclose(one, other, equal_nan=True)",
    ),
    Mutant(
        "kernels: networks clipped without their first layer",
        "heads/fused_network.py",
        "norms[i] = squared_norms[positions[i]]",
        "norms[i] = 0.0",
    ),
    Mutant(
        "kernels: records of a network that overflow count",
        "heads/fused_network.py",
        "if not np.isfinite(norm):",
        "if norm < 0.0:",
    ),
    Mutant(
        "kernels: networks clipped to twice the norm",
        "heads/fused_network.py",
        "limit = clip_norm / max(norm, smallest)",
        "limit = 2.0 * clip_norm / max(norm, smallest)",
    ),
    Mutant(
        "kernels: weights of a network left out",
        "heads/fused_network.py",
        "factors[i] = residual * weights[where] if weights.shape[0] else residual",
        "factors[i] = residual",
    ),
    Mutant(
        "kernels: networks clipped by norms that are not squared",
        "heads/fused.py",
        "records.row_norms**2",
        "records.row_norms",
    ),
    Mutant(
        "kernels: noise of one sign",
        "privacy/fused_noise.py",
        "t = -t if drawn[i] & np.uint64(1) else t",
        "t = abs(t)",
    ),
    Mutant(
        "kernels: tails of the noise are not decided exactly",
        "privacy/fused_noise.py",
        "values[i] = t if drawn[i] >= np.uint64(1 << (64 - POWERS)) else np.nan",
        "values[i] = t",
    ),
    Mutant(
        "kernels: sums beyond the grid",
        "privacy/fused_noise.py",
        "multiple = multiple if multiple < largest else largest\n        whole",
        "multiple = multiple if multiple < 2 * largest else largest\n        whole",
    ),
    Mutant(
        "kernels: doubtful draws are decided in floating point",
        "privacy/fused_noise.py",
        "clear += 1 if abs(noisy - nearest) < limit else 0",
        "clear += 1 if noisy == noisy else 0",
    ),
    Mutant(
        "kernels: the same noise for all numbers of a release",
        "privacy/fused_noise.py",
        "noisy = (multiple - whole) + ratio * noise[i]",
        "noisy = (multiple - whole) + ratio * noise[0]",
    ),
    Mutant(
        "kernels: half the noise in the tails",
        "privacy/noise.py",
        "kernel(drawn, make_quantile_table(), values)",
        "kernel(drawn, make_quantile_table() / 2, values)",
    ),
    Mutant(
        "kernels: noise of one step is used again",
        "privacy/noise.py",
        "noise = drawn.values[start : start + len(values)]",
        "noise = drawn.values[: len(values)]",
    ),
    # Many steps in one compiled call
    Mutant(
        "steps: the noise of the first step in every step",
        "training/fused_steps.py",
        "round_to_grid(sums, noise[step],",
        "round_to_grid(sums, noise[0],",
    ),
    Mutant(
        "steps: no noise",
        "training/fused_steps.py",
        "round_to_grid(sums, noise[step], grid, ratio,",
        "round_to_grid(sums, noise[step], grid, 1e-12 * ratio,",
    ),
    Mutant(
        "steps: parameters move by the sum without noise",
        "training/fused_steps.py",
        "noisy[i] = noisy[i] / weight",
        "noisy[i] = sums[i] / weight",
    ),
    Mutant(
        "steps: doubtful numbers are decided in floating point",
        "training/fused_steps.py",
        "            if count > 0:\n",
        "            if count < 0:\n",
    ),
    Mutant(
        "steps: every step has the sample of the first",
        "training/fused_steps.py",
        "sum_records(positions[spans[step, 0] : spans[step, 1]], *known)",
        "sum_records(positions[spans[0, 0] : spans[0, 1]], *known)",
    ),
    Mutant(
        "steps: samples that are drawn together are one sample",
        "training/sampling.py",
        "gaps = self.generator.geometric(self.sampling_probability, size=(*several, at_once))",
        "gaps = np.tile(self.generator.geometric(self.sampling_probability, size=at_once), (*several, 1))",
    ),
    Mutant(
        "steps: long calls that cannot be interrupted",
        "training/loop.py",
        "count = int(min(plan.num_steps - done, steps.at_once,",
        "count = int(min(plan.num_steps - done,",
    ),
    Mutant(
        "steps: noise is used again by the next release",
        "privacy/noise.py",
        "self._used = start + count * size  # for",
        "self._used = start + size  # for",
    ),
    Mutant(
        "steps: doubtful numbers are decided with the noise of the first step",
        "privacy/noise.py",
        "first = start + done * size",
        "first = start",
    ),
    Mutant(
        "steps: noise that does not cover rounding",
        "privacy/release.py",
        "self._streams[0].add_to_steps(steps, noise_std * (1 + self.rounding), num_steps)",
        "self._streams[0].add_to_steps(steps, noise_std, num_steps)",
    ),
    Mutant(
        "steps: all of them are recorded as one",
        "privacy/release.py",
        "self._record_gaussian(bounded, noise_std, sampling_probability, num_steps)",
        "self._record_gaussian(bounded, noise_std, sampling_probability)",
    ),
    Mutant(
        "steps: all of them are charged as one",
        "privacy/release.py",
        "mu_squared += release.mu**2 * times",
        "mu_squared += release.mu**2",
    ),
    Mutant(
        "steps: recorded after they were taken",
        "privacy/release.py",
        "        self._record_gaussian(bounded, noise_std, sampling_probability, num_steps)\n"
        "        self._streams[0].add_to_steps(steps, noise_std * (1 + self.rounding), num_steps)\n",
        "        self._streams[0].add_to_steps(steps, noise_std * (1 + self.rounding), num_steps)\n"
        "        self._record_gaussian(bounded, noise_std, sampling_probability, num_steps)\n",
    ),
    Mutant(
        "steps: past a curator that watches every release",
        "privacy/release.py",
        "return type(self) is Curator and len(self._streams) == 1",
        "return len(self._streams) == 1",
    ),
    Mutant(
        "steps: past the checkpoint",
        "privacy/release.py",
        "len(self._streams) == 1 and self._checkpoint is None",
        "len(self._streams) == 1",
    ),
    Mutant(
        "steps: half the sensitivity",
        "training/loop.py",
        'BoundedSum(steps.sums, sensitivity, "clipped gradients"), 0',
        'BoundedSum(steps.sums, sensitivity / 2, "clipped gradients"), 0',
    ),
    Mutant(
        "steps: a smaller sampling probability is recorded",
        "training/loop.py",
        "            sampling_probability=plan.sampling_probability,\n            num_steps=count,",
        "            sampling_probability=plan.sampling_probability / 2,\n            num_steps=count,",
    ),
    Mutant(
        "kernels: files are named without what is called",
        "_fused.py",
        "made_from = facts, versions, sorted(self._settings), callees",
        "made_from = facts, versions, sorted(self._settings)",
    ),
    # Ranks
    Mutant(
        "ranks: records of rank 0 are used by all ranks",
        "training/ranks.py",
        "return slice(self.num_records * rank // size, self.num_records * (rank + 1) // size)",
        "return slice(0, self.num_records * (rank + 1) // size)",
    ),
    Mutant(
        "ranks: other ranks send noise too",
        "training/loop.py",
        "share.ranks.answer(batches",
        "share.ranks.answer(rng.normal(size=parameters.shape) * clip_norm + batches",
    ),
    Mutant(
        "ranks: no sum but that of rank 0 is covered by the bound on rounding",
        "algorithms/descent.py",
        "elsewhere = sum(ranks.collect())",
        "elsewhere = 0.0 * sum(ranks.collect())",
    ),
    Mutant(
        "ranks: other ranks read private values before the cost is recorded",
        "algorithms/descent.py",
        "rng, weights = share.ranks.hear()  # rank 0 has recorded the cost\n",
        "_Part.of(records, share, fit_intercept=fit_intercept)\n        rng, weights = share.ranks.hear()\n",
    ),
    Mutant(
        "ranks: rounding covered as if shares were summed in blocks",
        "algorithms/preparation.py",
        "in_blocks = ranks is None and isinstance(records.public, StoredFeatures)",
        "in_blocks = isinstance(records.public, StoredFeatures)",
    ),
    Mutant(
        "ranks: other settings are not noticed",
        "algorithms/dividing.py",
        "if theirs != mine",
        "if False",
    ),
    # Clipping and clamping
    Mutant(
        "gradients not clipped",
        "training/clipping.py",
        "limits = workspace.compute_limits(clip_norm, trace.jacobian_norms, inputs)",
        "limits = 1e6 * workspace.compute_limits(clip_norm, trace.jacobian_norms, inputs)",
    ),
    Mutant(
        "residuals not clamped",
        "newton/release.py",
        "clamped = self.clamp(residuals)",
        "clamped = residuals",
    ),
    Mutant(
        "labels not clamped",
        "data/scaling.py",
        "return np.clip(scaled, low, high).astype(dtype)",
        "return ((label.values - (bounds.midpoint if center else 0.0)) / bounds.width).astype(dtype)",
    ),
    Mutant(
        "private columns not clamped",
        "data/scaling.py",
        "scaled[:, start] = np.clip(number, -largest, largest)",
        "scaled[:, start] = (column - origin) / private_unit(domain)",
    ),
    Mutant(
        "labels clamped to their own extremes",
        "data/scaling.py",
        "    bounds = label.bounds\n    scaled",
        "    bounds = Bounds(label.values.min(), label.values.max() + 1e-9)\n    scaled",
    ),
    # Noise
    Mutant(
        "no Gaussian noise",
        "privacy/release.py",
        "lambda: self._add_normal(bounded.value, noise_std * (1 + self.rounding))",
        "lambda: self._add_normal(bounded.value, noise_std * 1e-12)",
    ),
    Mutant(
        "half the Gaussian noise that is recorded",
        "privacy/release.py",
        "lambda: self._add_normal(bounded.value, noise_std * (1 + self.rounding))",
        "lambda: self._add_normal(bounded.value, noise_std * (1 + self.rounding) / 2)",
    ),
    Mutant(
        "half the noise in descent",
        "training/loop.py",
        "noise_std = per_configuration(plan.noise_multiplier) * clip_norm",
        "noise_std = per_configuration(plan.noise_multiplier) * clip_norm / 2",
    ),
    Mutant(
        "no noise on second moments",
        "newton/private_columns.py",
        "noisy = curator.release_gaussian(sums, noise_std=sensitivity / mu)",
        "noisy = sums.value",
    ),
    Mutant(
        "noise used again in every step",
        "privacy/noise.py",
        "        self._used += size\n",
        "        self._used = size\n",
    ),
    Mutant(
        "laplace: half the noise that is recorded",
        "privacy/release.py",
        "lambda: NoiseStream(shape, self._generators[0]).add(values, scale)",
        "lambda: NoiseStream(shape, self._generators[0]).add(values, scale / 2)",
    ),
    Mutant(
        "staircase: steps fall too fast",
        "privacy/noise.py",
        "step = np.floor(-np.log(v) / epsilon)",
        "step = np.floor(-np.log(v) / epsilon / 3)",
    ),
    Mutant(
        "histogram: half the noise",
        "privacy/release.py",
        "draw_integers(len(counts), scale=scale,",
        "draw_integers(len(counts), scale=scale / 2,",
    ),
    Mutant(
        "randomised response that answers truly",
        "privacy/release.py",
        "outcome[of_kind] = draw_outcomes(row.tolist(), len(of_kind), self._generators[0])",
        "outcome[of_kind] = np.argmax(row)",
    ),
    Mutant(
        "weighted sums: half the noise",
        "privacy/release.py",
        "bag_std = noise_std * np.sqrt(",
        "bag_std = 0.5 * noise_std * np.sqrt(",
    ),
    Mutant(
        "noise that is not on the grid",
        "privacy/noise.py",
        "nearest += self._take(len(values)).round(multiples - nearest, scale * (1 / grid))",
        "nearest = multiples + scale * (1 / grid) * self._take(len(values)).values",
    ),
    Mutant(
        "a grid that depends on the private sum",
        "privacy/noise.py",
        "grid = compute_grid(scale)\n        multiples",
        "grid = compute_grid(np.abs(values) + 1e-9)\n        multiples",
    ),
    Mutant(
        "doubtful draws are decided in floating point",
        "privacy/noise.py",
        "if not clear.all():",
        "if False:",
    ),
    Mutant(
        "the noise of a seeded fit does not depend on the records",
        "algorithms/preparation.py",
        "chain(settings, list_public(records), list_private(records))",
        "chain(settings, list_public(records))",
    ),
    Mutant(
        "the noise of a seeded fit does not depend on the budget",
        "algorithms/preparation.py",
        "chain(settings, list_public(records), list_private(records))",
        "chain(list_public(records), list_private(records))",
    ),
    Mutant(
        "weights: the mean weight in the sensitivity of a step",
        "newton/release.py",
        "self.query.square_weight * self.query.clip_norm) * weights).max())",
        "self.query.square_weight * self.query.clip_norm) * weights.mean()).max())",
    ),
    Mutant(
        "weights: the mean square of a record costs nothing",
        "newton/release.py",
        "(np.hypot(moves, self.query.square_weight * self.query.clip_norm) * weights)",
        "(np.hypot(moves, 0.0) * weights)",
    ),
    Mutant(
        "weights: a unit counts as its average record",
        "features/row_weights.py",
        "return float(self.unit_totals.max())",
        "return float(self.values.mean())",
    ),
    Mutant(
        "weights: those of the user are forgotten in the sum",
        "features/row_weights.py",
        "return values if self.of_records is None else values * self.of_records",
        "return values",
    ),
    Mutant(
        "weights: those of the user count twice in the sum of gradients",
        "training/batches.py",
        ".asarray(values, dtype=like.dtype)",
        ".asarray(np.sqrt(values), dtype=like.dtype)",
    ),
    Mutant(
        "weights: moments of private columns without them",
        "newton/private_columns.py",
        "scaled = block if weights is None else block * weights.values[span, None]",
        "scaled = block",
    ),
    Mutant(
        "weights: a score bounded by the mean weight",
        "algorithms/tuned.py",
        "sensitivity = LARGEST_RESIDUAL**2 * float(totals.max())",
        "sensitivity = LARGEST_RESIDUAL**2 * float(totals.mean())",
    ),
    Mutant(
        "weights: records and weights out of step",
        "data/records.py",
        "weights=None if self.weights is None else self.weights[index],",
        "weights=None if self.weights is None else self.weights[: len(index)],",
    ),
    Mutant(
        "weights: taken by algorithms that do not use them",
        "algorithms/algorithm.py",
        "        if records.weights is not None:\n            self.check_weights()\n",
        "",
    ),
    Mutant(
        "weights: not named as public",
        "privacy/guarantee.py",
        'public += "the weights of the records, " if self.weighted else ""',
        "pass",
    ),
    Mutant(
        "weights make no difference to the noise of a seeded fit",
        "algorithms/identity.py",
        'yield CellBytes(records.weights, b"weights")',
        'yield b"weights"',
    ),
    Mutant(
        "several labels: the whole budget for each",
        "algorithms/several.py",
        "    if number == 1 or math.isinf(whole.epsilon):",
        "    if True:",
    ),
    Mutant(
        "several labels: one event stands for all",
        "algorithms/several.py",
        "joint = JointCost.of([(algorithm.cost(part), event)] * number, neighbouring)",
        "joint = JointCost.of([(algorithm.cost(part), event)], neighbouring)",
    ),
    Mutant(
        "several labels: refused one by one",
        "algorithms/request.py",
        "        ledger.check(what, whole, neighbouring, event=event, table=table, unit=unit)\n",
        "",
    ),
    Mutant(
        "several labels: the whole of delta for each",
        "algorithms/several.py",
        "equal = PrivacyBudget(budget.epsilon / number, budget.delta / number)",
        "equal = PrivacyBudget(budget.epsilon / number, budget.delta)",
    ),
    Mutant(
        "several labels: a ledger of its own for each",
        "algorithms/request.py",
        "ledger=ledger,\n                    callback=callback,\n                    head_choice",
        "callback=callback,\n                    head_choice",
    ),
    Mutant(
        "several labels: later fits do not count them",
        "algorithms/request.py",
        "warn_of_joint_cost(LedgerEntry(what, whole, event=event), table, neighbouring, stacklevel=3)",
        "pass",
    ),
    Mutant(
        "units make no difference to the noise of a seeded fit",
        "algorithms/identity.py",
        "yield CellBytes(records.units.codes)",
        "pass",
    ),
    # Checkpoints and choices
    Mutant(
        "a resumed fit repeats its noise",
        "algorithms/preparation.py",
        'purpose = f"noise, {saved.resumption}" if saved is not None and resumed else "noise"',
        'purpose = "noise"',
    ),
    Mutant(
        "two resumed fits share their noise",
        "privacy/checkpoint.py",
        'return f"fit {self.fit_id} resumed {self.generation} times"',
        'return f"resumed {self.generation} times"',
    ),
    Mutant(
        "what was delivered is not in the checkpoint",
        "algorithms/algorithm.py",
        "saved.write()  # all releases",
        "pass  # all releases",
    ),
    Mutant(
        "older copies of a checkpoint are resumed",
        "privacy/checkpoint.py",
        "if seen is None or seen > self._progress:",
        "if False:",
    ),
    Mutant(
        "a checkpoint of other private values is resumed",
        "privacy/checkpoint.py",
        "if not hmac.compare_digest(str(seal), self._seal):",
        "if False:",
    ),
    Mutant(
        "a hash of private values that everyone can compute",
        "privacy/checkpoint.py",
        "hmac.new(_load_key(), digestmod=hashlib.sha256)",
        "hashlib.sha256()",
    ),
    Mutant(
        "one entry pays for several resumptions",
        "privacy/ledger.py",
        'if any("finished" in note or note.get("generation", 0) >= generation for note in notes):',
        "if False:",
    ),
    Mutant(
        "a choice among runs costs what one run costs",
        "privacy/selection.py",
        'return (2 if distribution == "geometric" else 1) * (',
        "return 0 * (",
    ),
    Mutant(
        "the score of a run costs nothing",
        "algorithms/tuned.py",
        "epsilon = compute_gaussian_epsilon(mu * math.sqrt(1 - self.score_fraction), budget.delta)",
        "epsilon = compute_gaussian_epsilon(mu, budget.delta)",
    ),
    Mutant(
        "the score of a run for one record of a unit",
        "algorithms/tuned.py",
        "(1 if records.units is None else records.units.largest)",
        "1",
    ),
    Mutant(
        "labels of a unit are charged once",
        "algorithms/randomized_labels.py",
        "*[label_epsilon] * per_unit",
        "label_epsilon",
    ),
    Mutant(
        "small pure releases pay for a large one",
        "privacy/events.py",
        "and _cover_pure(transcript, event)",
        "and transcript.pure_epsilon <= event.pure_epsilon * (1 + _ROUNDING)",
    ),
    Mutant(
        "a ledger knows its units by name only",
        "privacy/ledger.py",
        "if self.unit is not None and entry.cost.epsilon and known and sizes not in known:",
        "if False:",
    ),
    Mutant(
        "clones copy a generator",
        "estimators/regressor.py",
        'for name in ("ledger", "random_state")}',
        'for name in ("ledger",)}',
    ),
    Mutant(
        "one key for all noise without a seed",
        "privacy/randomness.py",
        "AESCounter(key=secrets.randbits(128))",
        "AESCounter(key=1)",
    ),
    Mutant(
        "float32 sums in descent",
        "training/clipping.py",
        "clamped = inputs.xp.minimum(inputs.xp.maximum(residuals, -limits), limits)",
        "clamped = inputs.xp.minimum(inputs.xp.maximum(residuals, -limits), limits).astype('float32')",
    ),
    Mutant(
        "float32 sums in newton",
        "features/public_rows.py",
        "return np.asarray(factors @ self._numbers)",
        "return np.asarray(factors.astype(np.float32) @ self.values.astype(np.float32))",
    ),
    Mutant(
        "rounded rows: arithmetic in float32",
        "features/public_rows.py",
        "if self.buffers is None or self.values.dtype == np.float64:",
        "if True: return self.values  # type: ignore[return-value]\n        if self.buffers is None:",
    ),
    Mutant(
        "rounded rows: records with weights too",
        "features/grouped_rows.py",
        "if kind is WhitenedRows and weights is None and",
        "if kind is WhitenedRows and",
    ),
    Mutant(
        "rounded rows: norms of the kernel in float32",
        "newton/fused_residuals.py",
        "u = np.float64(rows[start + i, j])  # float()",
        "u = float(rows[start + i, j])  # float()",
    ),
    Mutant(
        "rounding not covered",
        "privacy/bounded_sum.py",
        "return 1e-9 + (sequential if additions is None",
        "return 0.0 * (sequential if additions is None",
    ),
    # Tables in files
    Mutant(
        "files: rounding covered as if there were one partition",
        "data/passes.py",
        "-(-within // block_size) + len(partitions or ())",
        "-(-within // block_size)",
    ),
    Mutant(
        "files: a table read into memory is covered as if it were summed in blocks",
        "algorithms/auto.py",
        "return head.linear_in is Linearity.COLUMNS\n\n    def run",
        "return True\n\n    def run",
    ),
    Mutant(
        "files: a file may change during a fit",
        "data/stored_table.py",
        "if not FileState.of(file).matches(part.state):",
        "if False:",
    ),
    Mutant(
        "files: a file counts twice by two names",
        "data/stored_table.py",
        "if same or _hash_file(paths[other]) == _hash_file(paths[place]):",
        "if False:",
    ),
    Mutant(
        "files: noise depends on public cells without their order",
        "algorithms/identity.py",
        "yield records.public.digest",
        "yield repr(records.fingerprint).encode()",
    ),
    Mutant(
        "files: labels are not part of what noise is derived from",
        "algorithms/identity.py",
        "yield CellBytes(records.label.bounds.clamp(records.label[span].values))",
        "yield b''",
    ),
    Mutant(
        "files: samples of the next steps are read again and again",
        "training/stored_batches.py",
        "inputs, label = self._ahead.popleft()",
        "inputs, label = self._ahead[0]",
    ),
    Mutant(
        "files: records of other positions are gathered",
        "training/stored_batches.py",
        "places = self.wanted[first:last] - span.start",
        "places = np.arange(last - first)",
    ),
    # Accounting
    Mutant(
        "calibration off by a tenth",
        "privacy/accounting.py",
        "return math.exp(_bisect(excess, math.log(1e-12), math.log(1e6))) * (1 - _SAFETY)",
        "return math.exp(_bisect(excess, math.log(1e-12), math.log(1e6))) * 1.1",
    ),
    Mutant(
        "steps composed as if they were one",
        "privacy/transcript.py",
        "return math.sqrt(self.count) * self.sensitivity / self.noise_std",
        "return self.sensitivity / self.noise_std",
    ),
    Mutant(
        "the transcript is not compared with the entry",
        "algorithms/algorithm.py",
        "check_cost(task.curator.transcript, task.cost, task.neighbouring)",
        "pass",
    ),
    Mutant(
        "a release that is not in the transcript",
        "privacy/release.py",
        "        self._record_gaussian(bounded, noise_std, sampling_probability)",
        "        if not self._releases:\n            self._record_gaussian(bounded, noise_std, sampling_probability)",
    ),
    Mutant(
        "half the sampling probability in the transcript",
        "training/loop.py",
        "clipped, noise_std=noise_std, sampling_probability=plan.sampling_probability",
        "clipped, noise_std=noise_std, sampling_probability=plan.sampling_probability / 2",
    ),
    Mutant(
        "half of epsilon in the guarantee",
        "algorithms/task.py",
        "        guarantee = Guarantee(\n            self.cost,",
        "        guarantee = Guarantee(\n            PrivacyBudget(self.cost.epsilon / 2, self.cost.delta),",
    ),
    Mutant(
        "a response table's epsilon halved",
        "privacy/composition.py",
        "return float(np.log(largest[possible] / smallest[possible]).max())",
        "return float(np.log(largest[possible] / smallest[possible]).max()) / 2",
    ),
    Mutant(
        "newton: the opening is not paid for",
        "newton/schedule.py",
        "steps *= (1 - self.opening_fraction) / steps.sum()",
        "steps *= 1 / steps.sum()",
    ),
    Mutant(
        "newton: only the last block counts for the sensitivity",
        "newton/release.py",
        "_find_larger(self.farthest, other.farthest)",
        "min(self.farthest, other.farthest)",
    ),
    Mutant(
        "newton: only the last block counts for the sensitivity with weights",
        "newton/release.py",
        "_find_larger(self.alone, other.alone)",
        "min(self.alone, other.alone)",
    ),
    Mutant(
        "moments: private columns taken for centred",
        "algorithms/private_directions.py",
        "span = PrivateSpan.of(task.schema.private_domains, center=task.fit_intercept)",
        "span = PrivateSpan.of(task.schema.private_domains, center=True)",
    ),
    Mutant(
        "zero-out: half the move of a label",
        "data/scaling.py",
        "return max(bounds.midpoint - bounds.low, bounds.high - bounds.midpoint) / bounds.width",
        "return max(bounds.midpoint - bounds.low, bounds.high - bounds.midpoint) / bounds.width / 2",
    ),
    Mutant(
        "weighted sums: rounding not covered",
        "privacy/release.py",
        "        noise_std = noise_std * (1 + self.rounding)\n        self._append(WeightedSumRelease",
        "        self._append(WeightedSumRelease",
    ),
    Mutant(
        "samples that everyone can draw",
        "algorithms/descent.py",
        'rng, saved = task.make_generator("samples"), task.curator.load_state()',
        "rng, saved = np.random.default_rng(0), task.curator.load_state()",
    ),
    Mutant(
        "weights of bags that everyone can draw",
        "algorithms/weighted_llp.py",
        'rng = task.make_generator("weights")',
        "rng = np.random.default_rng(0)",
    ),
    Mutant(
        "a callback holds the live parameters",
        "algorithms/step_watch.py",
        "shown = np.asarray(progress.parameters).copy()",
        "shown = progress.parameters",
    ),
    # Ledger and lock
    Mutant(
        "two processes write at once",
        "privacy/chain.py",
        "fcntl.flock(file, fcntl.LOCK_EX)",
        "pass",
    ),
    Mutant(
        "a receipt is good for many fits",
        "privacy/ledger.py",
        "self._receipts = [each for each in self._receipts if each is not receipt]",
        "pass",
    ),
    Mutant(
        "the result is not compared with the curator",
        "algorithms/algorithm.py",
        "if result.transcript != task.curator.transcript or result.guarantee.budget != task.cost:",
        "if False:",
    ),
    Mutant(
        "records open without a recorded entry",
        "privacy/locked.py",
        "if not isinstance(receipt, Receipt) or not self.__ledger.redeem(receipt):",
        "if not isinstance(receipt, Receipt):",
    ),
    Mutant(
        "records open for a free entry",
        "privacy/locked.py",
        "if not receipt.entry.cost.covers(self.price):",
        "if False:",
    ),
    Mutant(
        "records are handed out though nothing is recorded",
        "algorithms/task.py",
        "return self.locked_records.open(receipt)",
        "return self.locked_records._Locked__content",
    ),
    *(
        Mutant(f"{name} reads before it spends", f"algorithms/{file}.py", "records = task.spend(", UNPAID)
        for name, file in (
            ("CondNewton", "cond_newton"),
            ("OneShot", "one_shot"),
            ("PrivateMean", "private_mean"),
            ("WeightedLLP", "weighted_llp"),
            ("RandomizedLabels", "randomized_labels"),
            ("CondDP", "descent"),
        )
    ),
    Mutant(
        "the ledger is not forced to disk",
        "privacy/chain.py",
        "    os.fsync(file.fileno())",
        "    pass",
    ),
    Mutant(
        "the budget is not checked",
        "privacy/ledger.py",
        "if not together.is_covered_by(self.budget):",
        "if False:",
    ),
    Mutant(
        "an event may cost more than its entry says",
        "privacy/total.py",
        "    if not delta <= cost.delta * (1 + _ROUNDING):",
        "    if False:",
    ),
    Mutant(
        "the releases are not compared with the event",
        "privacy/events.py",
        "    if not within:",
        "    if False:",
    ),
    Mutant(
        "the curator does not know the event",
        "algorithms/task.py",
        "        self.curator.limit(event)\n",
        "",
    ),
    Mutant(
        "the largest mu counts instead of the sum",
        "privacy/total.py",
        "mu_squared=self.mu_squared + event.mu**2,",
        "mu_squared=max(self.mu_squared, event.mu**2),",
    ),
    Mutant(
        "pure losses are forgotten",
        "privacy/total.py",
        "losses = (losses[:, None] + epsilon * (2 * ups - count)).ravel()",
        "losses = (losses[:, None] + 0 * epsilon * ups).ravel()",
    ),
    Mutant(
        "costs without an event are forgotten",
        "privacy/total.py",
        "        left = epsilon - self.others.epsilon\n",
        "        left = epsilon\n",
    ),
    Mutant(
        "a broken chain is accepted",
        "privacy/chain.py",
        "        elif stated != digest:",
        "        elif False:",
    ),
    Mutant(
        "a line does not depend on those before it",
        "privacy/chain.py",
        'hashlib.sha256(f"{previous}\\n{canonical}"',
        'hashlib.sha256(f"{canonical}"',
    ),
    Mutant(
        "a shortened file is accepted",
        "privacy/ledger_file.py",
        "        stored = None if header.is_copy else Witness.load(header.identity)",
        "        stored = None",
    ),
    Mutant(
        "a ledger takes any table",
        "privacy/ledger.py",
        "        if not any(table.matches(each) for each in known):",
        "        if False:",
    ),
    # What depends on private values
    Mutant(
        "newton: noise that depends on the labels",
        "newton/run.py",
        "mu=asked.mu,",
        "mu=asked.mu * (1 - 1e-3 * abs(float(label.mean()))),",
    ),
    Mutant(
        "newton: a stop that depends on a label",
        "newton/run.py",
        "        random_effects=random_effects,\n        callback=callback,\n    )\n    answer",
        "        random_effects=random_effects,\n"
        "        callback=lambda number, _: number > 5 and label[5] > 0.3,\n    )\n    answer",
    ),
    Mutant(
        "newton: clip norm from the labels",
        "newton/run.py",
        "            asked.query,\n",
        "            type(asked.query)(\n"
        "                asked.query.clip_norm * (1 + 1e-6 * float(label.max())),\n"
        "                *list(vars(asked.query).values())[1:],\n"
        "            ),\n",
    ),
    Mutant(
        "learned: every release with the budget of all",
        "newton/rounds.py",
        "mu=setting.mu * math.sqrt(fraction),",
        "mu=setting.mu,",
    ),
    Mutant(
        "learned: a stop that depends on a label",
        "newton/rounds.py",
        "return _Rounds(setting, callback, num_watched, watch_work).run(ask)",
        "return _Rounds(setting, lambda number, _: number > 5 and label[5] > 0.3, num_watched, watch_work).run(ask)",
    ),
    Mutant(
        "learned: clip norm from the labels",
        "newton/rounds.py",
        "            query,\n            mu=",
        "            type(query)(\n"
        "                query.clip_norm * (1 + 1e-6 * float(label.max())), *list(vars(query).values())[1:]\n"
        "            ),\n            mu=",
    ),
    Mutant(
        "learned: the budget of the calibration once more for a step",
        "newton/rounds.py",
        "fractions = fractions if is_calibrated else [*fractions, self.divided.last]",
        "fractions = [*fractions, self.divided.last]",
    ),
    Mutant(
        "learned: a calibration whose residuals are clamped",
        "newton/calibration.py",
        "error, length\n    return best, longest",
        "error, length\n    return best, 0.5 * longest",
    ),
    Mutant(
        "learned: the budget of public columns once more for private ones",
        "algorithms/learned_fit.py",
        "watch, mu=mu * math.sqrt(1 - fraction)\n",
        "watch, mu=mu\n",
    ),
    Mutant(
        "learned: features from private columns",
        "algorithms/learned_fit.py",
        "        label_range = scale_bounds(task.schema.label_bounds, center=True)\n",
        "        label_range = scale_bounds(task.schema.label_bounds, center=True)\n"
        "        if records.private is not None:\n"
        "            mixed = task.public.values * (1 + 1e-3 * records.private.values[:, :1])\n"
        "            setting = replace(setting, public=PublicFeatures(mixed, task.public.names))\n",
    ),
    Mutant(
        "distilled: a network learns from predictions that know a label",
        "algorithms/learned_fit.py",
        "        return cls(task, settings, rounds, setting, private, refit, watch.stopped)\n",
        "        if task.head.linear_in.name == 'NOTHING':\n"
        "            constant = rounds.function.constant + 1e-4 * float(np.max(records.label.values))\n"
        "            rounds = replace(rounds, function=replace(rounds.function, constant=constant))\n"
        "        return cls(task, settings, rounds, setting, private, refit, watch.stopped)\n",
    ),
    Mutant(
        "a label in a message",
        "data/parts.py",
        "'NaN or infinity' if finite else 'NaN'}.",
        "'NaN or infinity' if finite else 'NaN'}, up to {np.nanmax(array)}.",
    ),
    Mutant(
        "a saved guarantee is believed",
        "models/evidence.py",
        "    _check_cost(result)\n",
        "",
    ),
    Mutant(
        "a cached calibration is believed",
        "privacy/accounting.py",
        "if _is_calibrated(event(cached), float(epsilon), float(delta)):",
        "if event(cached):",
    ),
    Mutant(
        "masked values are used",
        "data/parts.py",
        "if isinstance(values, np.ma.MaskedArray):",
        "if False:",
    ),
    Mutant(
        "a cell for a column name in a message",
        "data/readers.py",
        "column of '{source}' have the same name.",
        "column of '{source}' have the same name {name}.",
    ),
)


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant."""

    mutant: Mutant
    caught_by: str
    seconds: float


def judge(mutant: Mutant) -> Verdict:
    """Plant a mutant in a copy and run the tests on it."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        root = Path(folder) / "project"
        root.mkdir()
        for name in COPIED:
            source = ROOT / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, root / name)
        mutant.plant(root)
        rest = ["tests", *(f"--ignore={each}" for each in WATCHING)]
        first = FIRST.get(mutant.file, ("tests/privacy/test_whole_fits.py", "tests/privacy/test_release.py"))
        tries = ([*first], [*WATCHING], rest)
        caught_by = next(filter(None, (_find_failure(root, each) for each in tries)), "")
    return Verdict(mutant, caught_by, time.monotonic() - started)


def _find_failure(root: Path, tests: list[str]) -> str:
    """Name of the first test that fails, or an empty text."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(root),
        "CONDDP_DATA": os.environ.get("CONDDP_DATA", str(ROOT.parent / "shared" / "data")),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", *tests]
    command.append("--ignore=tests/privacy/test_mutants.py")  # which sees the planted text, not its effect
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    found = re.search(r"^(?:FAILED|ERROR) (\S+?)(?:\[.*)?(?: - .*)?$", done.stdout, re.M)
    if found is None:
        raise RuntimeError(f"pytest did not run: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return found.group(1)


def main() -> int:
    """Judge all mutants, or those whose names or files hold a word; the exit code is the number of survivors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("word", nargs="?", default="", help="only mutants whose name or file holds this")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    started = time.monotonic()
    chosen = [mutant for mutant in MUTANTS if arguments.word in f"{mutant.name} {mutant.file}"]
    survivors = 0
    print("| mutant | file | caught by | seconds |\n|---|---|---|---|", flush=True)
    with ThreadPoolExecutor(arguments.workers) as pool:
        for verdict in pool.map(judge, chosen):
            survivors += not verdict.caught_by
            caught_by = f"`{verdict.caught_by}`" if verdict.caught_by else "**nothing**"
            name, file = verdict.mutant.name, verdict.mutant.file
            print(f"| {name} | `{file}` | {caught_by} | {verdict.seconds:.0f} |", flush=True)
    minutes = (time.monotonic() - started) / 60
    print(f"\n{len(chosen)} mutants, {survivors} survived, {minutes:.1f} minutes")
    return survivors


if __name__ == "__main__":
    sys.exit(main())
