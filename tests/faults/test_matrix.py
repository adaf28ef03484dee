"""The page of the fault matrix matches the tests' marks."""

import importlib.util
from pathlib import Path

import pytest

spec = importlib.util.spec_from_file_location("matrix", Path(__file__).with_name("matrix.py"))
matrix = importlib.util.module_from_spec(spec)
spec.loader.exec_module(matrix)


def test_the_page_is_current():
    assert matrix.PAGE.read_text() == matrix.page(matrix.ROOT / "tests"), "update it: python tests/faults/matrix.py"


def test_marks_are_found_on_tests_and_on_parameters_in_order():
    source = """
@pytest.mark.fault("a", "b", "c " "d", "e")
@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.fault("1", "2", "3", "4"))])
def test_it(x): ...
@pytest.mark.gpu
def test_other(): ...
@pytest.mark.xfail(reason="not yet")
@pytest.mark.fault("not", "yet", "so", "done")
def test_later(): ...
"""
    assert matrix.marks(source) == [["a", "b", "c d", "e"], ["1", "2", "3", "4"]]


@pytest.mark.parametrize("mark", ["'a', 'b', 'c'", "'a', 'b', 'c', ''", "'a', 'b', 'c', 4", "'a', 'b', 'c', more='d'"])
def test_a_mark_that_is_not_four_sentences_is_refused(mark):
    with pytest.raises(ValueError, match="line 1"):
        matrix.marks(f"@pytest.mark.fault({mark})\ndef test_it(): ...")


def test_text_with_pipes_and_line_breaks_stays_one_row(tmp_path):
    (tmp_path / "test_some.py").write_text(
        '"""Some."""\n@pytest.mark.fault("a|b", "c\\nd", "e", "f")\ndef test_it(): ...'
    )

    assert matrix.page(tmp_path).endswith("| **Some** | | | |\n| a\\|b | c d | e | f |\n")
