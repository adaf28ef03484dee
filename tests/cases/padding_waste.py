from harness import DoesNotFire, Fires, NotMeasured, given

from advisor.metrics.attention import attention_share
from advisor.metrics.base import Missing
from advisor.metrics.input import loader
from advisor.metrics.padding import padding, padding_beyond_longest, padding_waste
from advisor.metrics.settings import packs_sequences
from advisor.models.state import State
from profiler.schema import LoaderFact, PaddingFact, Place

# 50 sequences of 128 tokens and 50 of 64, padded to 512: 9600 real tokens, 50 x (16384 + 4096) real pairs.
PADDED = PaddingFact(
    id=1,
    told_by="batch['attention_mask']",
    batches=25,
    real=9600,
    longest=12800,
    padded=51200,
    real_pairs=1_024_000,
    padded_pairs=26_214_400,
)
TO_512 = {
    loader: LoaderFact(id=1, batch_size=4, place=Place(file="train.py", line=9)),
    padding: PADDED,
    padding_waste: 0.8125,
    padding_beyond_longest: 0.75,
    attention_share: 0.25,
}
TRANSFORMER = State(phases={"forward": 0.03, "backward": 0.06, "optimizer": 0.01})

# 51200 / (9600 x 1.05), and 26214400 / (1024000 x 1.1025)
TOKENS, PAIRS = 5.079, 23.22


def removed(speedup):
    return 0.9 * (1 - 1 / speedup)


def waste(of, attention=0.25):
    return given({**TO_512, padding_waste: of, attention_share: attention})


CASES = [
    Fires(
        "all samples are padded to one length, four times the longest in a batch",
        given(TO_512),
        code=("pad_sequence", "LikeLengths", "LikeLengths(lengths, 4)"),
        then="81% of the tokens are padding",
        note="batch['attention_mask'] shows it in 25 inspected batches",
        state=TRANSFORMER,
        removed=(removed(TOKENS), removed(1 / (0.75 / TOKENS + 0.25 / PAIRS)), removed(PAIRS)),
    ),
    Fires(
        "padded to the longest sample of each batch: only sorting helps",
        given({**TO_512, padding_beyond_longest: 0.0}),
        code="LikeLengths",
        absent="pad_sequence",
    ),
    Fires(
        "no kernels were recorded",
        given({**TO_512, attention_share: Missing("No", "Yes.")}),
        state=TRANSFORMER,
        removed=(removed(TOKENS), removed(1 / (0.8 / TOKENS + 0.2 / PAIRS)), removed(PAIRS)),
    ),
    Fires("just above the limit", waste(0.151)),
    DoesNotFire("just below the limit", waste(0.149)),
    Fires("just above the limit for a large share of attention", waste(0.101, attention=0.3)),
    DoesNotFire("just below the limit for a large share of attention", waste(0.099, attention=0.3)),
    DoesNotFire("too little attention for that lower limit", waste(0.149, attention=0.29)),
    DoesNotFire("no padding at all", waste(0.0)),
    DoesNotFire("sequences are packed: padding is not computed", given({**TO_512, packs_sequences: True})),
    Fires("sequences are not packed", given({**TO_512, packs_sequences: False})),
    NotMeasured("padding was not measured", given({**TO_512, padding_waste: Missing("No", "Yes.")})),
    NotMeasured("batches were not inspected", given({})),
]
