from harness import Blind, Fires, Silent, given

from advisor.metrics.input import epoch_restart_share, epoch_start_seconds, loader, loaders_made, t_w
from advisor.models.state import State
from advisor.rules.base import Intervention, Safety
from profiler.schema import LoaderFact, Place

RESTARTED = {
    loader: LoaderFact(id=1, num_workers=2, place=Place(file="train.py", line=31)),
    epoch_restart_share: 0.4,
    epoch_start_seconds: 0.125,
    t_w: 0.025,
}

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
        "every epoch makes a loader of its own, and its workers go with it",
        given({**RESTARTED, loaders_made: 10}),
        code="# once, before the loop over the epochs",
        then="there were 10 of them",
        by_hand=True,
    ),
    Fires("just above 3 % without the first batch", given({**RESTARTED, epoch_restart_share: 0.0376})),
    Silent("just below", given({**RESTARTED, epoch_restart_share: 0.0374})),
    Silent("the start is but the first batch", given({**RESTARTED, t_w: 0.124})),
    Silent("they persist", given({loader: LoaderFact(id=1, num_workers=2, persistent_workers=True)})),
    Silent("no workers", given({loader: LoaderFact(id=1)})),
    Blind("the run ended in its first epoch", given({loader: LoaderFact(id=1, num_workers=2), t_w: 0.02})),
]
