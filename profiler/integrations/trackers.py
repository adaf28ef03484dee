"""Log step time, phases and the first advice of a run to an experiment tracker.

with profile() as run:
    train()
to_tensorboard(run.result(), SummaryWriter("runs/first"))
"""

from collections.abc import Mapping
from typing import Any

ADVICE = "profile_train/advice"

Result = Mapping[str, Any]
"""Result of a run, as `profile.result()` returns it."""


def figures(result: Result, prefix: str = "profile_train") -> dict[str, float]:
    """Return step time (s), phases as fractions of the mean step, and GPU utilization.

    Values that were not measured are left out.
    """
    steps = result["steps"]
    values = {
        "steps": steps["count"],
        "step_time_s": steps["time_s"]["mean"],
        "step_time_p90_s": steps["time_s"]["p90"],
        **{f"phase/{name}": share for name, share in result["phases"].items()},
        "gpu_utilization": result.get("metrics", {}).get("gpu_utilization", {}).get("value"),
    }
    return {f"{prefix}/{name}": float(value) for name, value in values.items() if value is not None}


def advice(result: Result) -> str:
    """Return the first recommended change, in a sentence or two."""
    change = next((entry for entry in result["advice"] if entry["severity"] != "info"), None)
    return "No change is recommended." if change is None else f"{change['title']}: {change['then']}"


def to_tensorboard(result: Result | None, writer: Any, step: int | None = None) -> None:
    """Write a result to a `SummaryWriter`, at the training's `step`; do nothing if it is None."""
    if result is None:
        return
    for name, value in figures(result).items():
        writer.add_scalar(name, value, step)
    writer.add_text(ADVICE, advice(result), step)
    writer.flush()


def to_wandb(result: Result | None, run: Any) -> None:
    """Write a result to the history and summary of a wandb run; do nothing if it is None."""
    if result is not None:
        run.log({**figures(result), ADVICE: advice(result)})


def to_mlflow(result: Result | None, run_id: str, step: int | None = None) -> None:
    """Write a result to an mlflow run, which may have ended; do nothing if it is None. The advice becomes a tag."""
    if result is None:
        return
    from mlflow import MlflowClient

    client = MlflowClient()
    for name, value in figures(result).items():
        client.log_metric(run_id, name, value, step=step)
    client.set_tag(run_id, ADVICE, advice(result))
