from harness import DoesNotFire, Fires, NotMeasured, given

from advisor.metrics.settings import flags
from advisor.models.state import State
from advisor.rules.base import Intervention, Safety
from profiler.schema import FlagsFact

STEP = State(phases={"forward": 0.004, "backward": 0.014, "optimizer": 0.002, "communication": 0.002})

CASES = [
    Fires(
        "anomaly detection",
        given({flags: FlagsFact(anomaly=True)}),
        code="set_detect_anomaly(False)",
        absent="unset",
        note="anomaly detection",
        state=STEP,
        removed=(0.136, 0.526, 0.6545),
        intervention=Intervention(name="flags", settings={"anomaly": False}, safety=Safety.EXACT),
    ),
    Fires(
        "anomaly detection delays the host, and the GPU waits for the host",
        given({flags: FlagsFact(anomaly=True)}),
        state=State(phases={"forward": 0.03, "backward": 0.06, "other": 0.01}, launch=0.1),
        removed=(0.15, 0.579, 0.72),
    ),
    Fires(
        "the host waits for every kernel",
        given({flags: FlagsFact(launch_blocking=True)}),
        code="unset CUDA_LAUNCH_BLOCKING",
        state=STEP,
        removed=(0.0, 0.152, 0.4545),
        intervention=Intervention(
            name="environment", settings={"variables": {"CUDA_LAUNCH_BLOCKING": None}}, safety=Safety.EXACT
        ),
    ),
    Fires(
        "two debug settings: no single change turns both off",
        given({flags: FlagsFact(anomaly=True, launch_blocking=True)}),
        by_hand=True,
    ),
    Fires(
        "collectives are checked in detail",
        given({flags: FlagsFact(distributed_debug="DETAIL")}),
        code="unset TORCH_DISTRIBUTED_DEBUG",
        state=STEP,
        removed=(0.0, 0.008, 0.03),
    ),
    Fires(
        "the program's own profiler, possibly only for a few steps",
        given({flags: FlagsFact(program_profiler=True)}),
        code="schedule=",
        no_gain=True,
        by_hand=True,
    ),
    Fires(
        "the program's own profiler records every step",
        given({flags: FlagsFact(program_profiler=True, profiled_throughout=True)}),
        code="schedule=",
        note="which records every step",
        state=STEP,
        removed=(0.0, 0.303, 0.606),  # of 20 ms in 22
        by_hand=True,
    ),
    DoesNotFire("no debug setting is on", given({flags: FlagsFact()})),
    DoesNotFire("distributed debug level INFO costs nothing", given({flags: FlagsFact(distributed_debug="INFO")})),
    DoesNotFire("deterministic algorithms, which the program requested", given({flags: FlagsFact(deterministic=True)})),
    NotMeasured("the settings were not read", given({})),
]
