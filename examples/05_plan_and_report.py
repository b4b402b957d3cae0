"""Plan a fit for free, fit once, and write a report for the people responsible for the data.

This is what ``conddp plan``, ``conddp fit`` and ``conddp report`` do.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from statsmodels.datasets import randhie

from conddp import Schema
from conddp.files import fit_file, plan_file, report_file
from conddp.planning import save_record

schema = Schema.of(label="mdvis", label_bounds=(0, 30), public=["lncoins", "idp", "lpi", "fmde", "physlm", "disea"])

with TemporaryDirectory() as folder:
    data, model, page = (Path(folder) / name for name in ("visits.parquet", "model", "report.html"))
    randhie.load_pandas().data.to_parquet(data)

    plan = plan_file(data, schema, epsilon=0.5)  # reads public columns only
    print(plan.recommendation)
    save_record(plan, Path(folder) / "plan.json")

    saved = fit_file(data, schema, model, epsilon=0.5)  # the only step that spends budget
    print(f"spent {saved.ledger.spent}")

    report_file(model, page, plan=Path(folder) / "plan.json")
    print(f"{page.name}: {len(page.read_text(encoding='utf-8')) // 1000} kB, no script, no remote file")
