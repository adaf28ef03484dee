import pytest
from profiles import metrics, rank, steps

from advisor.metrics.base import Missing
from advisor.metrics.operators import compiled_functions
from profiler.schema import Operator


def recorded(*regions):
    operators = tuple(
        Operator(pid=1, window=1, device="cuda", name="aten::mm", inputs=(), calls=1, total=0.1, path=(region, "graph"))
        for region in regions
    )
    return metrics(rank(steps=steps(*[0.1] * 40), operators=operators))


def test_variants_of_compiled_function_count_once():
    assert recorded("Torch-Compiled Region: 0/0", "Torch-Compiled Region: 0/1", "Model")[compiled_functions] == 1
    assert recorded("Torch-Compiled Region: 0/0", "Torch-Compiled Region: 10/0")[compiled_functions] == 2


def test_number_of_compiled_functions_is_missing_without_any():
    with pytest.raises(Missing):
        recorded("Model")[compiled_functions]
