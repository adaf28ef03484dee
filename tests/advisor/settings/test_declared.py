"""Declared quantities, as people write them."""

import pytest

from advisor.metrics.base import Goals, Quality
from advisor.settings.declared import GOALS, READERS, goals, quality, validation
from profiler.errors import ProfilerError


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("val_acc>=0.76", Quality("val_acc", ">=", 0.76)),
        (" val/loss < 2.1e-1 ", Quality("val/loss", "<", 0.21)),
        ("bleu>30", Quality("bleu", ">", 30.0)),
        ("wer<=5", Quality("wer", "<=", 5.0)),
    ],
)
def test_a_quality_is_a_metric_and_its_target(text, meant):
    assert quality(text) == meant


@pytest.mark.parametrize(
    "text", ["", "val_acc", "val_acc>=", "val_acc=0.7", ">=0.7", "a b>=1", "x>=nan", "x>=inf", "x>=1>2"]
)
def test_invalid_quality_error_shows_how_to_write_it(text):
    with pytest.raises(ValueError, match=r"val_acc>=0\.76"):
        quality(text)


@pytest.mark.parametrize(
    ("name", "text"),
    [("goal", "speed"), ("target_batch", "0"), ("target_batch", "-8"), ("target_batch", "1e3"), ("gpu_price", "-1")],
)
def test_amounts_are_checked(name, text):
    with pytest.raises(ValueError, match=text):
        READERS[name](text)


def test_every_goal_of_the_dataclass_can_be_declared():
    assert {READERS["goal"](name) for name in GOALS} == set(GOALS)
    assert set(READERS) | {"capacity", "validation"} == set(Goals.__dataclass_fields__)


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("0.5\n0.625\n\n0.75\n", ""),
        ("val_acc\n0.5\n0.625\n0.75\n", ""),
        ("epoch,val_acc\n1,0.5\n2, 0.625\n3,0.75\n", ":val_acc"),
        ("step,loss,val_acc\n1,9,\n2,8,0.5\n3,7,0.625\n4,6,\n5,5,0.75\n", ":val_acc"),
    ],
    ids=["one number per line", "one number per line with a header", "a column", "a column with gaps"],
)
def test_validations_are_read_from_lines_or_a_column(tmp_path, text, column):
    path = tmp_path / "metrics.csv"
    path.write_text(text)

    assert validation(f"{path}{column}") == (0.5, 0.625, 0.75)


def test_a_colon_may_be_part_of_the_name(tmp_path):
    path = tmp_path / "run:1"
    path.write_text("0.5")

    assert validation(str(path)) == (0.5,)


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("epoch,val_acc\n1,0.5\n", "", "several columns. Name one: .*:COLUMN. Its columns: epoch, val_acc"),
        ("epoch,val_acc\n1,0.5\n", ":acc", "no column acc"),
        ("val_acc\n0.5\ngood\n", "", "'good' instead of a number"),
        ("epoch,val_acc\n1,0.5\n2,nan\n", ":val_acc", "'nan' instead of a number"),
        ("val_acc\n", "", "contains no numbers"),
        ("", "", "contains no numbers"),
    ],
)
def test_validation_file_without_values_is_refused(tmp_path, text, column, message):
    path = tmp_path / "metrics.csv"
    path.write_text(text)

    with pytest.raises(ProfilerError, match=message):
        validation(f"{path}{column}")


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"])
def test_unreadable_validation_file_is_profiler_error(tmp_path, content):
    path = tmp_path / "val.txt"
    if content:
        path.write_bytes(content)

    with pytest.raises(ProfilerError, match="cannot be read"):
        validation(str(path))


def test_goals_contain_declared_values(tmp_path):
    (tmp_path / "val.txt").write_text("0.5\n0.6\n")

    made = goals({"goal": "cost", "validation": str(tmp_path / "val.txt")})
    assert made == Goals(goal="cost", validation=(0.5, 0.6))
