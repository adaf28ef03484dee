"""Render tuning.json: the result of `profile-train tune` for programs.

Its schema is docs/tuning.schema.json.
"""

import json
from collections.abc import Mapping
from typing import Any

from advisor.report.render.picked import picked
from advisor.report.render.result_json import verified
from advisor.verify.fitting import Ending, Fitted
from advisor.verify.tuning import KeptChange, Tuned


def render(note: Mapping[str, object], tuned: Tuned | Fitted) -> str:
    """Return the file: the note on the tuned program, by which a resumed tuning is recognized, and the result."""
    return json.dumps({**note, "result": result(tuned)}, indent=2, allow_nan=False) + "\n"


def result(tuned: Tuned | Fitted) -> dict[str, Any]:
    """Return what was kept and what was not. Times are seconds per step; null is "not measured"."""
    if isinstance(tuned, Fitted):
        return {
            "goal": "memory",
            "before": _ending(tuned.before),
            "after": _ending(tuned.after) if tuned.after else None,
            "kept": list(map(_kept, tuned.kept)),
            "not_kept": [],
            "by_hand": [],
            "left_out": list(tuned.left_out),
            "run": str(tuned.profile),
        }
    return {
        "goal": "throughput",
        "before": {"fits": True, "step_time_s": tuned.before, "why": ""},
        "after": {"fits": True, "step_time_s": tuned.after, "why": ""},
        "kept": list(map(_kept, tuned.kept)),
        "not_kept": [{"rule": tried.rule, "verified": verified(tried)} for tried in tuned.given_up],
        "by_hand": [finding.rule.id for finding in tuned.by_hand],
        "left_out": [],
        "run": str(tuned.profile),
    }


def _ending(ending: Ending) -> dict[str, Any]:
    return picked(ending, "fits step_time_s=step_time why")


def _kept(kept: KeptChange) -> dict[str, Any]:
    change = {"name": kept.finding.change.name, "settings": dict(kept.finding.change.settings)}
    return {"rule": kept.verified.rule, "change": change, "verified": verified(kept.verified)}
