"""Check of a guarantee against its own evidence: transcript, schema, ledger and statistics of public columns."""

import math

from conddp.errors import PrivacyError
from conddp.models.evaluation import NUM_RELEASES, Evaluation
from conddp.models.old_formats import describe_gaps, has_transcript
from conddp.models.result import FitResult
from conddp.privacy.bounded_sum import bound_rounding
from conddp.privacy.composition import compute_delta, describe_transcript
from conddp.privacy.guarantee import Guarantee

__all__ = ["check_evidence"]

_ROUNDING = 1e-9


def check_evidence(result: FitResult) -> None:
    """Raise unless the guarantee of a result follows from its own evidence.

    The cost of the transcript is computed anew: its delta at the stated epsilon must not exceed the stated delta. The
    text about the releases must be the one that the transcript gives, the columns and bounds must be those of the
    schema, and the ledger must have an entry of this cost under this relation.

    A model that was saved in an old format without a transcript is checked in all other respects. Its guarantee must
    have the remark of :func:`~conddp.models.old_formats.describe_gaps`, and nobody else's may have one.

    Privacy
        Reads no data. Called when a model is saved, loaded or reported, so that an altered guarantee is not repeated.

    Raises
    ------
    PrivacyError
        If the guarantee promises more than the evidence shows, or is about something else.
    """
    guarantee, schema, ledger = result.guarantee, result.schema, result.ledger
    if guarantee.remark != describe_gaps(result.old_format):
        raise PrivacyError("the guarantee does not say, as it must, in which format it was saved and what that lacks.")
    if result.old_format is None or has_transcript(result.old_format):
        _check_cost(result)
    elif len(result.transcript):
        raise PrivacyError(f"format {result.old_format} kept no transcript, but there is one.")
    if not guarantee.mechanism.startswith(describe_transcript(result.transcript, guarantee.neighbouring)):
        raise PrivacyError("the guarantee describes other releases than the transcript lists.")
    columns = (schema.label.name, schema.label_bounds, schema.public, schema.private)
    if columns != (guarantee.label, guarantee.label_bounds, guarantee.public_columns, guarantee.private_columns):
        raise PrivacyError("the guarantee is about other columns or bounds than the schema.")
    if guarantee.category_columns != schema.category_columns:
        raise PrivacyError("the guarantee and the schema disagree about which private columns have categories.")
    if guarantee.missing_is_public != schema.label.missing_is_public:
        raise PrivacyError("the guarantee and the schema disagree on whether missing labels are public.")
    if guarantee.rounding is not None:
        least, most = bound_rounding(guarantee.num_records, 1), bound_rounding(guarantee.num_records)
        if not least <= guarantee.rounding <= most:
            raise PrivacyError("the guarantee states an increase of noise that cannot cover rounding errors of sums.")
    if guarantee.unit != (schema.unit or ""):
        raise PrivacyError("the guarantee and the schema name different unit columns.")
    if ledger.unit is not None and ledger.unit != guarantee.unit:
        raise PrivacyError("the guarantee and the ledger protect different units.")
    design = result.design
    if design is not None and (design.columns, design.num_records) != (result.features, guarantee.num_records):
        raise PrivacyError("the guarantee is about other records or columns than the statistics of public columns.")
    if guarantee.neighbouring is not ledger.neighbouring:
        raise PrivacyError("the guarantee and the ledger state different neighbouring relations.")
    evaluation = result.evaluation
    if evaluation is not None and (evaluation.label, evaluation.bounds) != (schema.label.name, schema.label_bounds):
        raise PrivacyError("the evaluation is about another label than the schema.")
    if evaluation is not None and not any(entry.cost == evaluation.budget and entry.side for entry in ledger.entries):
        raise PrivacyError("no entry of the ledger is for the held-out records of the evaluation.")
    if evaluation is not None:
        _check_evaluation(evaluation, guarantee)
    if not any(entry.cost == guarantee.budget for entry in ledger.entries):
        raise PrivacyError(f"no entry of the ledger has the cost of the guarantee, {guarantee.budget}.")


def _check_evaluation(evaluation: Evaluation, guarantee: Guarantee) -> None:
    """Raise unless an evaluation that is stored with a model promises what its fit does, on records held out of it."""
    promised = (evaluation.neighbouring, evaluation.unit, evaluation.private_columns, evaluation.seeded)
    if promised != (guarantee.neighbouring, guarantee.unit, guarantee.private_columns, guarantee.seeded):
        raise PrivacyError("the evaluation and the guarantee protect different things.")
    if not evaluation.held_out or len(evaluation.transcript) != NUM_RELEASES:
        raise PrivacyError("the evaluation is not one of held-out records with all of its releases.")


def _check_cost(result: FitResult) -> None:
    transcript, stated = result.transcript, result.guarantee.budget
    if not len(transcript):
        raise PrivacyError("the transcript lists no release, so that nothing supports the guarantee.")
    if math.isinf(stated.epsilon):
        return
    delta = compute_delta(transcript, stated.epsilon, result.guarantee.neighbouring, at_most=stated.delta)
    if not delta <= stated.delta * (1 + _ROUNDING):
        raise PrivacyError(
            f"the guarantee states {stated}, but at epsilon={stated.epsilon:g} the releases in the transcript have "
            f"delta={delta:.3g}."
        )
