import pytest
from profiles import metrics, rank, steps

from advisor.metrics.base import Missing
from advisor.metrics.padding import FEWEST, padding, padding_beyond_longest, padding_waste
from profiler.schema import LoaderFact, PaddingFact

RECOGNIZED = PaddingFact(id=2, told_by="batch[0]", batches=FEWEST, real=400, longest=1000, padded=1600)


def of(*facts):
    loaders = (LoaderFact(id=1, training=False), LoaderFact(id=2, training=True))
    return metrics(rank(steps=steps(*[0.1] * 40), loaders=loaders, paddings=facts))


def test_padding_is_of_training_loader():
    validation = PaddingFact(id=1, told_by="batch[0]", batches=9, real=1, longest=1, padded=1)

    m = of(validation, RECOGNIZED)

    assert m[padding] is RECOGNIZED
    assert m[padding_waste] == 0.75
    assert m[padding_beyond_longest] == pytest.approx(0.375)


@pytest.mark.parametrize(
    "facts",
    [
        (),
        (PaddingFact(id=1, told_by="batch[0]", batches=9, real=1, padded=2),),
        (PaddingFact(id=2),),
        (PaddingFact(id=2, told_by="batch[0]", batches=FEWEST - 1, real=1, padded=2),),
        (PaddingFact(id=2, told_by="batch[0]", batches=FEWEST),),
    ],
    ids=["none", "of another loader", "no padding recognized", "too few batches", "no tokens"],
)
def test_padding_waste_is_missing_if_unknown(facts):
    with pytest.raises(Missing):
        of(*facts)[padding_waste]
