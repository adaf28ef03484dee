"""The integrations without their frameworks; tests/foreign covers them with frameworks."""

import importlib
import sys

import pytest

from profiler.integrations.trackers import advice, figures, to_tensorboard

RESULT = {
    "steps": {"count": 40, "time_s": {"mean": 0.1, "p50": 0.1, "p90": 0.12, "p99": None, "mean_ci95": None}},
    "phases": {"data_wait": 0.25, "forward": 0.75, "h2d": None},
    "advice": [
        {"severity": "info", "title": "Declare a goal", "then": "then declare one."},
        {"severity": "action", "title": "Use workers", "then": "then load in 4 of them."},
    ],
}


def test_figures_contain_only_measured_values():
    assert figures(RESULT) == {
        "profile_train/steps": 40,
        "profile_train/step_time_s": 0.1,
        "profile_train/step_time_p90_s": 0.12,
        "profile_train/phase/data_wait": 0.25,
        "profile_train/phase/forward": 0.75,
    }


def test_advice_skips_info_severity():
    information, action = RESULT["advice"]

    assert advice(RESULT) == f"{action['title']}: {action['then']}"
    assert information["title"] not in advice({**RESULT, "advice": [information]})


def test_missing_result_writes_no_tensorboard_entry():
    to_tensorboard(None, writer=None)


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("lightning", "lightning"),
        ("transformers", "transformers"),
        ("accelerate", "accelerate"),
        ("jupyter", "ipython"),
    ],
)
def test_missing_framework_is_named_with_pip_command(monkeypatch, name, package):
    for missing in ("lightning", "pytorch_lightning", "transformers", "accelerate", "IPython"):
        monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, f"profiler.integrations.{name}", raising=False)

    with pytest.raises(ImportError, match=rf"not installed: pip install {package}"):
        importlib.import_module(f"profiler.integrations.{name}")
