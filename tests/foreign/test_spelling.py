"""The installed frameworks accept every argument that is advised."""

import ast
import inspect
import json
from dataclasses import fields, replace
from pydoc import locate

import pytest
from gpu_runs import ADAM, FLAGS, MODEL, gpu_metrics

from advisor.metrics.settings import flags, model, optimizer, world_size
from advisor.rules._spelling import spelling

# Framework calls in the code to copy; its loops are the program's own.
HOMES = {
    "transformers": ("transformers.TrainingArguments",),
    "lightning": ("lightning.Trainer", "lightning.pytorch.callbacks.ModelCheckpoint"),
    "fabric": ("lightning.Fabric", "lightning.Fabric.no_backward_sync"),
    "accelerate": (
        "accelerate.Accelerator",
        "accelerate.utils.TorchDynamoPlugin",
        "accelerate.utils.DataLoaderConfiguration",
        "accelerate.FullyShardedDataParallelPlugin",
    ),
}
PACKAGES = {"fabric": "lightning"}

SPELLED = [
    lambda it: it.loader(num_workers=5, persistent_workers=True, prefetch_factor=2, pin_memory=True),
    lambda it: it.copy_ahead(),
    lambda it: it.batch_size(32),
    lambda it: it.half("bf16"),
    lambda it: it.half("fp16"),
    lambda it: it.tf32(),
    lambda it: it.cudnn_benchmark(),
    lambda it: it.compile(),
    lambda it: it.compile("reduce-overhead"),
    lambda it: it.fused(),
    lambda it: it.eight_bit(),
    lambda it: it.accumulate(4, 8),
    lambda it: it.checkpoint("Block", 1),
    lambda it: it.no_checkpoints(),
    lambda it: it.shard(2),
    lambda it: it.log_every(50),
    lambda it: it.save_every(500, "10 min", in_background=False),
    lambda it: it.no_anomaly_detection(),
    lambda it: it.less_profiling(),
]


def spelled(framework, ranks=1):
    """Return all changes, as for a run whose optimizer the framework created."""
    adam = replace(ADAM, driven_by=(framework,), place=replace(ADAM.place, via=(framework,)))
    settings = {optimizer: adam, model: MODEL, world_size: ranks, flags: replace(FLAGS, autocast=False)}
    it = spelling(gpu_metrics(settings))
    return [change for spell in SPELLED for change in spell(it)]


def called(framework, ranks=1):
    """Yield name and keyword arguments of each call to the framework in the code to copy."""
    for change in spelled(framework, ranks):
        for node in ast.walk(ast.parse(change.code)) if change.language == "python" else ():
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func).rpartition(".")[2]
                if name in [home.rpartition(".")[2] for home in HOMES[framework]]:
                    yield name, {each.arg: each.value for each in node.keywords}


@pytest.mark.parametrize(
    "framework", [pytest.param(one, marks=pytest.mark.foreign(PACKAGES.get(one, one))) for one in HOMES]
)
def test_every_advised_argument_exists(framework):
    calls = list(called(framework))
    for name, keywords in calls:
        (home,) = [home for home in HOMES[framework] if home.endswith(f".{name}")]
        assert set(keywords) <= set(inspect.signature(locate(home)).parameters), name
    assert {name for name, _ in calls} == {home.rpartition(".")[2] for home in HOMES[framework]}


@pytest.mark.foreign("transformers")
@pytest.mark.parametrize("ranks", [1, 8])
def test_advised_transformers_optimizers_and_settings_are_valid(ranks):
    from transformers.trainer_pt_utils import AcceleratorConfig
    from transformers.training_args import OptimizerNames

    found = {name: ast.literal_eval(value) for _, each in called("transformers", ranks) for name, value in each.items()}
    chosen = [ast.literal_eval(each["optim"]) for _, each in called("transformers", ranks) if "optim" in each]

    assert len(chosen) == 2
    assert set(chosen) <= {one.value for one in OptimizerNames}
    assert set(found["accelerator_config"]) <= {field.name for field in fields(AcceleratorConfig)}


@pytest.mark.foreign("lightning")
def test_advised_lightning_precisions_and_strategies_are_valid():
    from lightning.fabric.plugins.precision.precision import _PRECISION_INPUT_STR
    from lightning.pytorch.strategies import StrategyRegistry

    given = [keywords for _, keywords in called("lightning")]
    precisions, strategies = (
        {ast.literal_eval(each[name]) for each in given if name in each} for name in ("precision", "strategy")
    )

    assert precisions <= set(_PRECISION_INPUT_STR.__args__)
    assert strategies <= set(StrategyRegistry.available_strategies())


@pytest.mark.foreign("deepspeed")
def test_deepspeed_accepts_the_advised_configuration():
    from deepspeed.runtime.config import DeepSpeedConfig

    whole = {"train_batch_size": 1, "bf16": {"enabled": False}}
    for change in spelled("deepspeed"):
        if change.language == "json":
            config = json.loads(change.code)
            read = DeepSpeedConfig(config if "train_batch_size" in config else {**whole, **config})
            for key in ("gradient_accumulation_steps", "train_micro_batch_size_per_gpu"):
                assert getattr(read, key) == config.get(key, 1)
            if "bf16" in config:
                assert read.bfloat16_config.enabled
            if "zero_optimization" in config:
                assert read.zero_config.stage == 2
            if "optimizer" in config:
                assert read.optimizer_name == "adamw"
