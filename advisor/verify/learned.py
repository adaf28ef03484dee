"""Add a trial to the calibration file: the prediction, what it was made from, and its outcome."""

import math
from datetime import datetime, timezone

from advisor.judging import calibration_file
from advisor.judging.judge import Finding
from advisor.verify.kept import Verified
from advisor.verify.trials import Trials, Watcher
from profiler.errors import ProfilerError
from profiler.version import __version__


def keep(tries: Trials, finding: Finding, found: Verified, watcher: Watcher) -> None:
    """Add a trial to the file, if there is one. A write error is reported, and trials continue."""
    file = tries.how.calibration
    if file is None:
        return
    confidence = finding.advice.confidence or finding.rule.confidence
    # The program, with the changes that both arms have.
    trained = (tries.program.cwd, *tries.program.words, *(each.name for each in tries.changes))
    entry = {
        "case": calibration_file.case(trained, finding.rule.id),
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "version": __version__,
        "rule": finding.rule.id,
        "verdict": found.verdict.value,
        "predicted": finding.modeled,
        "removed": found.removed,
        "confidence": confidence.value,
        "evidence": {each.metric.name: each.value for each in finding.evidence.facts if math.isfinite(each.value)},
        "limits": finding.rule.in_force,
        "memory_predicted": finding.advice.memory,
        "memory": found.memory,
        "losses_agree": found.losses_agree,
        "steps": found.steps,
        "processes": found.processes,
    }
    try:
        calibration_file.append(file, entry)
    except ProfilerError as error:
        watcher.show(str(error))
