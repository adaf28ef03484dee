from harness import DoesNotFire, Fires, NotMeasured, given

from advisor.metrics.between import epoch_gap_share, epoch_settling_share
from advisor.metrics.input import batch_time, epoch_restart_share, epoch_start_seconds, loader, loaders_made
from advisor.models.state import State
from advisor.rules.base import Intervention, Safety
from profiler.schema import LoaderFact, Place

RESTARTED = {
    loader: LoaderFact(id=1, num_workers=2, place=Place(file="train.py", line=31)),
    epoch_restart_share: 0.4,
    epoch_start_seconds: 0.125,
    batch_time: 0.025,
}
SPAWNED = {**RESTARTED, loader: LoaderFact(id=1, num_workers=2, context="spawn")}

CASES = [
    Fires(
        "epochs of a dozen batches",
        given(RESTARTED),
        code="persistent_workers=True,  # was False",
        state=State(phases={"forward": 0.015}, between={"epoch_start": 0.010}),
        removed=(0.224, 0.288, 0.32),  # 40 % of the time; a fifth of each start is its first batch
        intervention=Intervention(
            name="loader", settings={"file": "train.py", "line": 31, "persistent_workers": True}, safety=Safety.EXACT
        ),
    ),
    Fires(
        "every epoch creates a new DataLoader with new workers",
        given({**RESTARTED, loaders_made: 10}),
        code="# once, before the loop over the epochs",
        then="this run created 10",
        by_hand=True,
    ),
    Fires(
        "steps after the workers fork are also slower",
        given({**RESTARTED, epoch_settling_share: 0.2}),
        state=State(phases={"forward": 0.010}, between={"epoch_start": 0.010, "epoch_settling": 0.005}),
        removed=(0.364, 0.468, 0.52),  # 80 % of 40 % and all of 20 %
    ),
    Fires(
        "spawned workers share no memory with the training process: slow first steps have another cause",
        given({**SPAWNED, epoch_settling_share: 0.2}),
        state=State(phases={"forward": 0.010}, between={"epoch_start": 0.010, "epoch_settling": 0.005}),
        removed=(0.224, 0.288, 0.32),
    ),
    DoesNotFire(
        "a pause between epochs that workers did not cause",
        given({**RESTARTED, epoch_restart_share: 0.01, epoch_gap_share: 0.5}),
    ),
    Fires("just above 3 %, excluding the first batch", given({**RESTARTED, epoch_restart_share: 0.0376})),
    DoesNotFire("just below 3 %, excluding the first batch", given({**RESTARTED, epoch_restart_share: 0.0374})),
    DoesNotFire("the epoch start is almost only the first batch", given({**RESTARTED, batch_time: 0.124})),
    DoesNotFire(
        "workers are persistent already", given({loader: LoaderFact(id=1, num_workers=2, persistent_workers=True)})
    ),
    DoesNotFire("no workers", given({loader: LoaderFact(id=1)})),
    NotMeasured("the run ended in its first epoch", given({loader: LoaderFact(id=1, num_workers=2), batch_time: 0.02})),
]
