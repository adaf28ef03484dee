from harness import DoesNotFire, Fires, NotMeasured, given

from advisor.metrics.base import Goals
from advisor.metrics.between import checkpoint_save_seconds

# 20 s a save, 2 h between interruptions, 5 min to restart: tau 523 s, E 1.124, break-even at a discount of 11 %.
SAVING = {checkpoint_save_seconds: 20.0}


def offered(discount: float | None = 0.65, mtbf: float | None = 7200.0, price: float | None = None):
    return given(SAVING, Goals(spot_discount=discount, mtbf=mtbf, restart=300.0, gpu_price=price))


CASES = [
    Fires(
        "a discount of 65 %",
        offered(price=2.5),
        code="signal.SIGTERM",
        then="39% of the cost (152 less for every 100 GPU-hours) in 1.12 times the time, saving every 8 min 43 s. Spot "
        "instances pay off from a discount of 11% on",
        no_gain=True,
        cost=(0.576, 0.607, 0.623),
        fault=False,
    ),
    Fires(
        "an undeclared restart time is assumed",
        given(SAVING, Goals(spot_discount=0.65, mtbf=7200.0)),
        then="A restart is assumed to take 5 min",
    ),
    Fires("just above the limit", offered(0.289)),
    DoesNotFire("just below the limit", offered(0.287)),
    DoesNotFire(
        "long checkpoints, many interruptions: E 1.83",
        given({checkpoint_save_seconds: 60.0}, Goals(spot_discount=0.3, mtbf=1800.0, restart=600.0)),
    ),
    DoesNotFire("with so many interruptions, the run practically never ends", offered(0.99, mtbf=0.1)),
    NotMeasured("no discount was declared", offered(discount=None)),
    NotMeasured("interruptions were not declared", offered(mtbf=None)),
    NotMeasured("no checkpoint was saved", given({}, Goals(spot_discount=0.65, mtbf=7200.0))),
]
