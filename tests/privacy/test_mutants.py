"""The list of planted defects follows the code; `make mutants` runs the tests on each."""

import pytest

from tests.privacy.mutants import MUTANTS, ROOT, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_a_text_that_is_there_once(mutant: Mutant) -> None:
    assert (ROOT / "conddp" / mutant.file).read_text().count(mutant.old) == 1
    assert mutant.new != mutant.old


def test_mutants_have_names_of_their_own() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 25
