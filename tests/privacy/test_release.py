"""What leaves a fit, watched from outside."""

import io
import json
import logging
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from conddp import CondDP, PrivacyBudget, PrivacyLedger, PrivateRegressor
from conddp.bounds import Bounds
from conddp.data.parts import Labels, PublicFeatures
from conddp.data.readers import load_records
from conddp.data.records import Records
from conddp.data.schema import Schema
from conddp.errors import BudgetExceeded, CondDPError
from conddp.privacy.accounting import calibrate_gaussian_mu
from conddp.privacy.randomness import RandomSource

SECRET = 73512.0625  # exact in binary, so that it would be found as text and as bytes


def test_neighbouring_data_sets_are_as_hard_to_tell_apart_as_promised() -> None:
    # One full-batch step on a record that is clipped on both sides. The best test between the two data sets looks
    # along the record's own direction; the means of its statistic differ by mu standard deviations, which is what the
    # accountant allows. 4,000 fits of each: the standard error of the estimate is 0.022 of a standard deviation.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    labels = rng.uniform(0, 1, size=40)
    budget = PrivacyBudget(3.0, 1e-3)
    algorithm = CondDP(num_steps=1, averaging=0.0, clip_norm=0.05, learning_rate=1.0)
    public = PublicFeatures(X)
    released = []
    for value in (0.0, 1.0):
        labels[0] = value
        data = Records(public, None, Labels(labels.copy(), Bounds(0, 1)))
        runs = [
            algorithm.fit(data, budget, random_source=RandomSource.of(np.random.default_rng((int(value), seed))))
            for seed in range(4000)
        ]
        released.append(np.stack([run.model.parameters for run in runs]))
    low, high = released
    covariance = (np.cov(low.T) + np.cov(high.T)) / 2
    shift = high.mean(axis=0) - low.mean(axis=0)
    found = float(np.sqrt(shift @ np.linalg.solve(covariance, shift)))
    assert found == pytest.approx(calibrate_gaussian_mu(3.0, 1e-3), abs=4 * 0.022)


def test_the_ledger_is_on_disk_before_labels_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger.jsonl"
    seen: list[list[dict[str, Any]]] = []
    from conddp.data.scaling import scale_label as original

    def watch(*arguments: Any, **settings: Any) -> Any:
        seen.append([json.loads(line) for line in path.read_text().splitlines()])
        return original(*arguments, **settings)

    monkeypatch.setattr("conddp.algorithms.descent.scale_label", watch)
    ledger = PrivacyLedger(PrivacyBudget(1.0, 1e-5), path=path)
    data = Records(PublicFeatures(np.eye(3)), None, Labels(np.ones(3), Bounds(0, 2)))
    CondDP(num_steps=2).fit(data, PrivacyBudget(0.5, 1e-6), ledger=ledger)
    assert len(seen) == 1
    assert seen[0][-1]["cost"] == {"epsilon": 0.5, "delta": 1e-6}


def test_a_crash_in_training_over_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: Any, **__: Any) -> Any:
        raise RuntimeError("power cut")

    monkeypatch.setattr("conddp.algorithms.descent.train", crash)
    ledger = PrivacyLedger(PrivacyBudget(1.0, 1e-5))
    data = Records(PublicFeatures(np.eye(3)), None, Labels(np.ones(3), Bounds(0, 2)))
    with pytest.raises(RuntimeError):
        CondDP(num_steps=2).fit(data, PrivacyBudget(0.5, 1e-6), ledger=ledger)
    assert ledger.spent.epsilon == 0.5


class Untouchable:
    """A label that fails the test when anything looks at it."""

    name = None

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("the label was read")

    def __len__(self) -> int:
        raise AssertionError("the label was read")


def test_a_refused_fit_reads_nothing() -> None:
    ledger = PrivacyLedger(PrivacyBudget(0.1, 1e-6))
    with pytest.raises(BudgetExceeded):
        PrivateRegressor(epsilon=1.0, label_bounds=(0, 1), ledger=ledger).fit(np.eye(3), Untouchable())


BAD_PRIVATE_INPUT: dict[str, Any] = {
    "text label": lambda X, y: (X, ["alpha-secret", *y[1:]]),
    "text label in a series": lambda X, y: (X, pd.Series(["alpha-secret", *y[1:]])),
    "label with NaN": lambda X, y: (X, [float("nan"), *y[1:]]),
    "complex label": lambda X, y: (X, np.asarray(y, dtype=complex)),
    "label of two columns": lambda X, y: (X, np.column_stack([y, y])),
    "label too short": lambda X, y: (X, y[1:]),
    "object label": lambda X, y: (X, np.array([{"alpha-secret": SECRET}, *y[1:]], dtype=object)),
    "ragged label": lambda X, y: (X, [[SECRET], *y[1:]]),
    "text private column": lambda X, y: (pd.DataFrame(X).astype(object).replace(SECRET, "alpha-secret"), y),
    "text in an object array": lambda X, y: (np.where(X == SECRET, "alpha-secret", X.astype(object)), y),
    "NaN in a private column": lambda X, y: (np.where(X == SECRET, np.nan, X), y),
    "one row instead of a table": lambda X, y: (X[:, 1], y),
    "text in one row": lambda X, y: (np.array(["alpha-secret"] * 6), y),
    "string array": lambda X, y: (np.array([["1", "alpha-secret"]] * 6, dtype=np.dtypes.StringDType()), y),
    "complex table": lambda X, y: (X.astype(complex), y),
    "series instead of a table": lambda X, y: (pd.Series(X[:, 1]), y),
    "categories": lambda X, y: (
        pd.DataFrame({"a": X[:, 0], "b": pd.Categorical(["alpha-secret"] * 6, ordered=True)}),
        y,
    ),
    "date in a private column": lambda X, y: (pd.DataFrame(X).assign(**{"c": pd.Timestamp("1973-05-12")}), y),
}


@pytest.mark.parametrize("case", BAD_PRIVATE_INPUT)
def test_messages_about_bad_input_quote_no_private_value(case: str) -> None:
    X = np.column_stack([np.arange(6.0), [SECRET, 1.0, 2.0, 3.0, 4.0, 5.0]])
    bad_X, bad_y = BAD_PRIVATE_INPUT[case](X, [SECRET, 1.0, 2.0, 3.0, 4.0, 5.0])
    model = PrivateRegressor(label_bounds=(0, 10), private_columns={1: (0, 10)})
    with pytest.raises((CondDPError, ValueError, TypeError)) as caught:
        model.fit(bad_X, bad_y)
    error: BaseException | None = caught.value
    while error is not None:  # the whole chain, suppressed or not
        assert "73512" not in str(error)
        assert "secret" not in str(error)
        assert "1973" not in str(error)
        error = error.__cause__ or error.__context__


def test_a_malformed_file_is_refused_without_quoting_it(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b,y\n1,2,3\n1,alpha-secret\n")
    schema = Schema.of(label="y", label_bounds=(0, 1), public=["a"])
    with pytest.raises(CondDPError) as caught:
        load_records(path, schema)
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is None


def test_nothing_that_a_fit_leaves_behind_holds_a_private_value(caplog: pytest.LogCaptureFixture) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1e5, size=(50, 2))
    X[:, 1] = SECRET
    y = np.full(50, SECRET)
    text = io.StringIO()
    with caplog.at_level(logging.DEBUG):
        model = PrivateRegressor(label_bounds=(0, 1e5), private_columns={1: (0, 1e5)}).fit(X, y)
    print(model, vars(model), model.guarantee_, model.ledger_, model.ledger_.entries, file=text)
    assert "73512" not in text.getvalue() + caplog.text
    scaled = (SECRET - 5e4) / 1e5
    for value in (SECRET, scaled, scaled * np.sqrt(12)):
        assert np.float64(value).tobytes() not in pickle.dumps(model)


def test_clamping_is_not_reported_record_by_record(recwarn: pytest.WarningsRecorder) -> None:
    X = np.arange(20.0)[:, None]
    inside, outside = np.linspace(0, 1, 20), np.linspace(-50, 50, 20)
    messages = []
    for y in (inside, outside):
        model = PrivateRegressor(label_bounds=(0, 1), random_state=0).fit(X, y)
        messages.append((str(model.guarantee_), len(recwarn)))
    assert messages[0] == messages[1]
