"""The tables of Korthikanti et al., recomputed; GB = 1e9 bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.models.activations import KeptParts, Layer, logits

GB = 1e9
GPT3, GPT3_LAYERS = Layer(sequence=2048, batch=1, hidden=12288, heads=96), 96
MT_NLG = Layer(sequence=2048, batch=1, hidden=20480, heads=128)


def test_gpt3():
    assert GPT3.activations() / GB == pytest.approx(2.869, abs=0.001)
    assert GPT3_LAYERS * GPT3.activations() / GB == pytest.approx(275.4, abs=0.1)
    assert GPT3_LAYERS * GPT3.activations(KeptParts.NO_SCORES) / GB == pytest.approx(82.1, abs=0.1)
    assert GPT3_LAYERS * GPT3.activations(KeptParts.INPUT) / GB == pytest.approx(4.83, abs=0.01)


@pytest.mark.parametrize(("layer", "saving", "overhead"), [(GPT3, 0.702, 0.0270), (MT_NLG, 0.653, 0.0164)])
def test_selective_recomputation(layer: Layer, saving: float, overhead: float):
    assert 1 - layer.activations(KeptParts.NO_SCORES) / layer.activations() == pytest.approx(saving, abs=0.0005)
    assert layer.selective_overhead == pytest.approx(overhead, abs=5e-5)


def test_activations_match_published_formula():
    """sbh (34 + 5as/h)."""
    sbh = 2048 * 12288
    assert GPT3.activations() == pytest.approx(sbh * (34 + 80))
    assert GPT3.activations(KeptParts.NO_SCORES) == pytest.approx(sbh * 34)
    assert GPT3.activations(KeptParts.INPUT) == pytest.approx(2 * sbh)


def test_four_byte_elements_double_activations():
    assert GPT3.activations(element=4) == 2 * GPT3.activations()


def test_a_layer_of_llamas_width():
    """The layer used to estimate checkpointing of every N-th layer."""
    layer = Layer(sequence=4096, batch=1, hidden=4096, heads=32)
    assert layer.activations(KeptParts.NO_SCORES) / 1e6 == pytest.approx(570.4, abs=0.05)
    assert layer.activations(KeptParts.INPUT) / 1e6 == pytest.approx(33.6, abs=0.05)


def test_logits():
    assert logits(8192, 1, 128256) / GB == pytest.approx(6.30, abs=0.01)


sizes = st.builds(
    Layer,
    sequence=st.integers(1, 10**5),
    batch=st.integers(1, 64),
    hidden=st.integers(64, 20000),
    heads=st.integers(1, 128),
)


@given(sizes)
def test_keeping_less_never_takes_more(layer: Layer):
    kept = [layer.activations(keeps) for keeps in (KeptParts.INPUT, KeptParts.NO_SCORES, KeptParts.SCORES)]
    assert kept == sorted(kept)
    assert 0 < layer.selective_overhead < 1


@pytest.mark.parametrize(
    "nonsense",
    [
        lambda: Layer(sequence=0, batch=1, hidden=1, heads=1),
        lambda: logits(1, 0, 1),
    ],
)
def test_nonsense_is_refused(nonsense):
    with pytest.raises(ValueError, match="0"):
        nonsense()
