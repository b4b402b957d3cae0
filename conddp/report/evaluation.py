"""The section about an evaluation, and a report of its own."""

from conddp.models.evaluation import CalibrationBin, Evaluation, Interval
from conddp.report.document import Bars, Block, Document, Facts, Section, Table, Text

__all__ = ["describe_evaluation", "report_evaluation"]

SHORT = {"mse": "MSE", "rmse": "RMSE", "mae": "MAE", "r2": "R²", "bias": "bias", "slope": "slope"}  # for phones
SLOPE = "The slope is that of a regression of labels on predictions, 1 if the model is calibrated."
NOTHING_PRIVATE = "This page holds no private value: everything on it is public or released under the guarantee."


def report_evaluation(evaluation: Evaluation) -> Document:
    """Report of an evaluation on its own.

    Privacy
        Everything in it is public, declared, or released under the guarantee of the evaluation: no cost.
    """
    rmse = evaluation["rmse"]
    lead = (
        f"On {evaluation.num_records:,} held-out records the root mean squared error is {rmse.sample.describe()}, "
        f"with {100 * evaluation.level:g} % confidence. Cost: {evaluation.budget}."
    )
    section = describe_evaluation(evaluation)
    guaranteed = Section(
        "What is guaranteed",
        (
            Text(evaluation.guarantee),
            Facts(
                (
                    ("epsilon", f"{evaluation.budget.epsilon:g}"),
                    ("delta", f"{evaluation.budget.delta:g}"),
                    ("neighbouring relation", evaluation.neighbouring.value),
                    ("held-out records", f"{evaluation.num_records:,}"),
                    ("noise", "from a fixed seed" if evaluation.seeded else "from a cryptographic generator"),
                )
            ),
        ),
    )
    return Document(f"Evaluation of '{evaluation.label}'", lead, (section, guaranteed), NOTHING_PRIVATE)


def describe_evaluation(evaluation: Evaluation) -> Section:
    """Figures of an evaluation with their intervals, and predictions against actual labels."""
    heads, *rows = evaluation.list_rows()
    slope = any(each.name == "slope" for each in evaluation.figures)
    names = [SHORT[each.name] for each in evaluation.figures]
    rows = [(name, *row[1:]) for name, row in zip(names, rows, strict=True)]
    held_out = (
        " The fit held them out by a public random split: they cost no more than the fit itself."
        if evaluation.held_out
        else ""
    )
    blocks: list[Block] = [
        Text(
            f"From {evaluation.num_records:,} held-out records, at a cost of {evaluation.budget}.{held_out} Errors and "
            f"bias are in the units of '{evaluation.label}'."
        ),
        Table("How well the model predicts", ("figure", *heads[1:]), tuple(rows)),
        Text(
            "MSE is the mean squared error, RMSE its root, and MAE the mean absolute error. R² is one minus the MSE "
            f"over the variance of the label. Bias is the mean of label minus prediction. {SLOPE if slope else ''}"
        ),
        *map(Text, evaluation.list_notes()),
    ]
    if len(evaluation.bins) > 1:
        blocks += [
            Text(
                "Records with similar predictions are in one bin. If the model is calibrated, the mean label of a bin "
                "equals its mean prediction, and the point is on the diagonal, up to the error that the bars show."
            ),
            _draw(evaluation),
        ]
    return Section("How well it predicts", tuple(blocks))


def _draw(evaluation: Evaluation) -> Bars:
    level = f"{100 * evaluation.level:g} %"
    return Bars(
        "Predicted against actual",
        f"mean prediction of '{evaluation.label}'",
        f"mean of '{evaluation.label}'",
        tuple(each.predicted for each in evaluation.bins),
        tuple(each.actual for each in evaluation.bins),
        tuple(_list_ends(each, each.sample) for each in evaluation.bins),
        tuple(_list_ends(each, each.population) for each in evaluation.bins),
        ("mean label of a bin, with noise", f"{level}, these records", f"{level}, population", "prediction = label"),
    )


def _list_ends(each: CalibrationBin, interval: Interval) -> tuple[float, float]:
    return (
        each.actual if interval.low is None else interval.low,
        each.actual if interval.high is None else interval.high,
    )
