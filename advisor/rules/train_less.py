"""Training continues although the validation result no longer improves.

If the best value has not changed for several validations, further steps are mostly wasted. Early stopping ends the run
at that point and keeps the best checkpoint. Ordering samples from easy to hard (a curriculum) sometimes reaches the
same quality sooner; treat it as an experiment, not as a reliable saving.

Wrong when: the learning rate has not decayed yet (a plateau before the decay is normal), the validation is noisier than
the improvement you hope for, or the validation does not measure your goal. If lower is better, as for a loss, declare
negative values. If you stop early, shorten the learning rate schedule as well.

Source: Prechelt, Early Stopping - But When?, 1998, https://doi.org/10.1007/3-540-49430-8_3
Source: Bengio et al., Curriculum Learning, ICML 2009, https://doi.org/10.1145/1553374.1553380
"""

from advisor.metrics import Metrics, Missing, Need, Threshold, goals
from advisor.models.effects import remove_run, up_to
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, Severity, evidence, measure, python
from advisor.units import share

RULE = Rule("Stop when validation results are flat", Area.MODEL, Confidence.HEURISTIC, cap=Severity.SUGGEST)

PATIENCE = Threshold(
    5, "Number of validations to wait for an improvement; with fewer, bad luck may stop the run (usual practice)."
)


def when(m: Metrics) -> Evidence | None:
    """If at least the last five of the declared validations did not improve the best value by a thousandth,"""
    if m[goals.validations] <= m[PATIENCE]:
        raise Missing(
            f"{m[goals.validations]} validations are too few to detect a plateau",
            f"Declare the results of more than {m[PATIENCE]:g}.",
            Need.DECLARATION,
        )
    return evidence(
        measure(m, goals.stale_validations, ">=", PATIENCE),
        measure(m, goals.validations),
        note=f"the best was number {m[goals.validations] - m[goals.stale_validations]}",
    )


def then(m: Metrics, found: Evidence) -> Advice:
    """then stop early, and keep the best checkpoint."""
    patience = round(m[PATIENCE])
    late_validations = m[goals.stale_validations] - m[PATIENCE]
    saved_share = late_validations / m[goals.validations]
    timing = (
        f"; that would have ended this run after {share(1 - saved_share)} of it"
        if late_validations > 0
        else "; that is now"
    )
    return Advice(
        then=f"Stop when {patience} validations in a row bring no improvement, and keep the best checkpoint{timing}.",
        changes=(
            python(
                "# after each validation\n"
                f"if value > best + {goals.IMPROVEMENT} * abs(best):\n"
                "    best, waited = value, 0\n"
                '    torch.save(model.state_dict(), "best.pt")\n'
                "else:\n"
                "    waited += 1\n"
                f"stop = waited >= {patience}  # then leave the loop\n"
            ),
        ),
        basis="(total - stop) / total of the declared validations; 50 to 100 % of that, because the next run may "
        "improve later.",
        effect=remove_run(up_to(saved_share)) if late_validations > 0 else None,
        risk="Medium: you would miss a later improvement. Compare the quality on data that was not used for stopping.",
    )
