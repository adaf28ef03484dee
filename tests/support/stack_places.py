"""A function of a program that takes two thirds of a step."""

from advisor.metrics.lines import HotPlace

NORMALIZE = HotPlace(
    phase="other",
    file="/home/me/train.py",
    line=41,
    function="normalize",
    whole=True,
    share=0.66,
    low=0.6,
    high=0.72,
    samples=300,
    library="",
    called="",
)
