"""Each change in the words of each framework: it parses, and uses the program's own names, places and settings."""

import ast
import json
from dataclasses import replace

import pytest
from gpu_runs import ADAM, FLAGS, LOADER, MODEL, gpu_metrics

from advisor.metrics.between import evaluations
from advisor.metrics.input import loader
from advisor.metrics.program import configuration, driver
from advisor.metrics.settings import flags, model, optimizer, world_size
from advisor.metrics.step import Recording, micro_steps_per_step, recording
from advisor.rules._spelling import FRAMEWORKS, spelling
from advisor.rules.base import CodeDifference
from profiler.schema import CallFact, Place

OURS = {"transformers": "TrainingArguments", "lightning": "Trainer", "fabric": "Fabric", "accelerate": "Accelerator"}
NAMES = {**OURS, "deepspeed": "initialize"}

CHANGES = {
    "workers": lambda it: it.loader(num_workers=5, persistent_workers=True, prefetch_factor=2),
    "pinned": lambda it: it.loader(pin_memory=True),
    "copies": lambda it: it.copy_ahead(),
    "batch": lambda it: it.batch_size(32),
    "bf16": lambda it: it.half("bf16"),
    "fp16": lambda it: it.half("fp16"),
    "tf32": lambda it: it.tf32(),
    "cudnn": lambda it: it.cudnn_benchmark(),
    "compile": lambda it: it.compile(),
    "graphs": lambda it: it.compile(mode="reduce-overhead"),
    "fused": lambda it: it.fused(),
    "8 bits": lambda it: it.eight_bit(),
    "rate": lambda it: it.learning_rate(2.0, "grows with the batch"),
    "accumulation": lambda it: it.accumulate(4),
    "micro-batches": lambda it: it.accumulate(4, 8),
    "checkpoints": lambda it: it.checkpoint("Block", 2),
    "no checkpoints": lambda it: it.no_checkpoints(),
    "ZeRO 1": lambda it: it.shard(1),
    "ZeRO 3": lambda it: it.shard(3),
    "log": lambda it: it.log_every(50),
    "save": lambda it: it.save_every(500, "10 min", in_background=True),
    "evaluation": lambda it: it.evaluate_every(4),
    "anomaly": lambda it: it.no_anomaly_detection(),
    "profiler": lambda it: it.less_profiling(),
}


def run(framework="torch", *, call=True, made_by=(), settings=None, **changes):
    """Return the spelling of a run driven by `framework`, with variables named net and opt."""
    place = Place(file="train.py", line=7)
    adam = replace(ADAM, driven_by=(framework,), variable="opt", fused=None)
    if made_by:
        adam = replace(adam, place=replace(adam.place, via=made_by))
    values = {
        world_size: changes.pop("ranks", 1),
        flags: replace(FLAGS, **changes.pop("flags", {})),
        model: replace(
            MODEL, **{"variable": "net", "place": Place(file="train.py", line=10)} | changes.pop("model", {})
        ),
        optimizer: replace(adam, **changes.pop("optimizer", {})),
        loader: replace(LOADER, num_workers=0, **changes.pop("loader", {})),
        micro_steps_per_step: 2.0,
        **changes.pop("known", {}),
    }
    if call:
        values[configuration] = CallFact(id=framework, name=NAMES[framework], place=place, settings=settings or {})
    return spelling(gpu_metrics(values))


def plain(**changes):
    return run(call=False, **changes)


def code(changes):
    return "\n".join(change.code for change in changes)


def keywords(changes):
    """Return the keyword arguments of all calls in the changes, by the last name of what is called."""
    found = {}
    for change in changes:
        if change.language == "python":
            for node in ast.walk(ast.parse(change.code)):
                if isinstance(node, ast.Call):
                    name = ast.unparse(node.func).rpartition(".")[2]
                    found.setdefault(name, {}).update({each.arg: ast.unparse(each.value) for each in node.keywords})
    return found


# ---- all of them ----


@pytest.mark.parametrize("framework", ["torch", *FRAMEWORKS])
def test_suggested_code_parses(framework, subtests):
    made = (framework,) if framework in ("transformers", "deepspeed") else ()
    for call in {framework != "torch", False}:  # with the framework's call known, and unknown
        it = run(framework, call=call, made_by=made)
        for name, change in CHANGES.items():
            with subtests.test(name, call=call):
                for each in change(it):
                    assert each.code.endswith("\n")
                    if each.language == "python":
                        compile(each.code, "<change>", "exec")
                    else:
                        json.loads(each.code)


def test_every_recognized_framework_has_spellings():
    assert set(FRAMEWORKS) == set(NAMES)
    assert run("accelerate").m[driver] == "accelerate"


# ---- the program's own loop ----


def test_code_uses_names_and_lines_of_program():
    (compiled,) = plain().compile()

    assert "net = torch.compile(net)  # the Transformer" in compiled.code
    assert (compiled.file, compiled.line) == ("train.py", 10)
    assert "opt.step()" in code(plain().accumulate(4))
    assert "loss_function(net(inputs), targets)" in code(plain().half("bf16"))


def test_code_uses_default_names_if_unknown():
    it = plain(model={"variable": None}, optimizer={"variable": "not a name"})

    assert "model = torch.compile(model)" in code(it.compile())
    assert "optimizer.step()" in code(it.accumulate(4))


def test_loader_change_lists_differences():
    (change,) = plain().loader(num_workers=5, persistent_workers=True, prefetch_factor=2)

    assert (change.file, change.line) == ("train.py", 12)
    assert change.differences == (
        CodeDifference("num_workers", "0", "5"),
        CodeDifference("persistent_workers", "False", "True"),
    )  # prefetch_factor has no value while there are no workers


def test_loader_recreated_by_framework_has_no_line():
    made = Place(file="train.py", line=40, via=("accelerate",))
    (change,) = run("accelerate", loader={"place": made}).loader(num_workers=5)

    assert (change.file, change.line) == (None, None)


def test_loader_made_by_lightning_has_line_that_passes_data():
    made = Place(file="train.py", line=40, via=("lightning",))
    for place in (made, replace(made, via=())):
        (change,) = run("lightning", loader={"place": place}).loader(num_workers=5)
        assert (change.file, change.line) == ("train.py", 40)


@pytest.mark.parametrize(
    ("wrapper", "settings", "said"),
    [
        ("DistributedDataParallel", {"ddp": True}, "net.no_sync():"),
        ("FullyShardedDataParallel", {"fsdp": True}, "net.no_sync():"),
        ("FSDPModule", {"fsdp": True}, "net.set_requires_gradient_sync(i % accumulate == 0)"),
    ],
)
def test_gradients_are_reduced_once(wrapper, settings, said):
    advised = code(plain(model={"wrappers": (wrapper,)}, flags=settings).accumulate(4))

    assert said in advised
    if "no_sync" in said:  # DistributedDataParallel checks it in the forward pass
        (held,) = [node for node in ast.walk(ast.parse(advised)) if isinstance(node, ast.With)]
        assert ["net(inputs)" in ast.unparse(line) for line in held.body] == [True, False]
        assert ast.unparse(held.body[1]) == "loss.backward()"


def test_one_rank_has_nothing_to_reduce():
    assert "sync" not in code(plain().accumulate(4))


def test_fsdp2_precision_is_set_by_its_policy():
    it = plain(model={"wrappers": ("FSDPModule",)})

    assert "MixedPrecisionPolicy(param_dtype=torch.bfloat16" in code(it.half("bf16"))


# ---- transformers ----


def test_a_trainers_loader_is_set_by_its_arguments():
    (change,) = run("transformers").loader(num_workers=5, persistent_workers=True, prefetch_factor=2, pin_memory=True)

    assert keywords([change]) == {
        "TrainingArguments": {
            "dataloader_num_workers": "5",
            "dataloader_persistent_workers": "True",
            "dataloader_prefetch_factor": "2",
            "dataloader_pin_memory": "True",
        }
    }
    assert (change.file, change.line) == ("train.py", 7)
    assert change.differences[0] == CodeDifference("dataloader_num_workers", "0", "5")


def test_before_values_come_from_source():
    it = run("transformers", settings={"gradient_accumulation_steps": "3", "logging_steps": "1"})

    assert it.log_every(50)[0].differences == (CodeDifference("logging_steps", "1", "50"),)
    assert it.save_every(500, "an hour", in_background=False)[0].differences[1] == CodeDifference(
        "save_steps", "not set", "500"
    )
    assert CodeDifference("gradient_accumulation_steps", "3", "8") in it.accumulate(8)[0].differences


def test_arguments_read_from_command_line_are_shown_as_options():
    (change,) = run("transformers", call=False).half("bf16")

    assert keywords([change])["TrainingArguments"]["bf16"] == "True"
    assert "--bf16 True" in change.code


@pytest.mark.parametrize(
    ("made_by", "name", "said"),
    [
        (("transformers",), "AdamW", 'optim="adamw_torch_fused"'),
        (("transformers",), "SGD", "torch.optim.SGD(..., fused=True)"),
        ((), "AdamW", "torch.optim.AdamW(..., fused=True)"),
    ],
)
def test_only_adam_made_by_trainer_is_set_by_name(made_by, name, said):
    assert said in code(run("transformers", made_by=made_by, optimizer={"name": name}).fused())


def test_learning_rate_comes_from_arguments_not_schedule():
    it = run("transformers", made_by=("transformers",), settings={"learning_rate": "2e-05"})

    assert it.learning_rate(2.0, "")[0].differences == (CodeDifference("learning_rate", "2e-05", "4e-05"),)


def test_several_ranks_use_torchao_for_8_bit_moments():
    one, several = (run("transformers", made_by=("transformers",), ranks=ranks) for ranks in (1, 8))

    assert "adamw_bnb_8bit" in code(one.eight_bit())
    assert "adamw_torch_8bit" in code(several.eight_bit())


def test_other_precision_is_disabled_if_autocast_is_on():
    assert keywords(run("transformers").half("bf16"))["TrainingArguments"] == {"bf16": "True", "fp16": "False"}
    eager = run("transformers", flags={"autocast": False})
    assert keywords(eager.half("bf16"))["TrainingArguments"] == {"bf16": "True"}


# ---- the others ----


def test_lightning():
    it = run("lightning", settings={"precision": '"32-true"'})

    assert it.half("bf16")[0].differences == (CodeDifference("precision", '"32-true"', '"bf16-mixed"'),)
    assert keywords(it.half("fp16"))["Trainer"] == {"precision": "'16-mixed'"}
    size, accumulated = it.accumulate(4, 8)
    assert "DataLoader(..., batch_size=8)" in size.code
    assert accumulated.differences == (CodeDifference("accumulate_grad_batches", "2", "4"),)
    assert "DataLoader(" in code(it.loader(num_workers=5))


@pytest.mark.parametrize(
    ("within", "written"), [({}, "check_val_every_n_epoch"), ({"val_check_interval": "50"}, "if ")]
)
def test_lightning_evaluates_by_epoch_unless_interval_is_set(within, written):
    assert written in code(run("lightning", settings=within).evaluate_every(4))


def test_trainer_evaluation_interval_is_multiplied():
    known = {evaluations: 5, recording: Recording(steps=50, seconds=1.0, ordinary=45, warm_up=10)}
    assert keywords(run("transformers", known=known).evaluate_every(4))["TrainingArguments"]["eval_steps"] == "40"


def test_fabric():
    assert "fabric.no_backward_sync(net, enabled=i % accumulate != 0)" in code(run("fabric").accumulate(4))


def test_accelerate():
    it = run("accelerate", settings={"gradient_accumulation_steps": "2"})

    assert keywords(it.half("bf16"))["Accelerator"] == {"mixed_precision": "'bf16'"}
    assert keywords(it.compile())["Accelerator"] == {"dynamo_backend": "'inductor'"}
    assert keywords(it.compile("reduce-overhead"))["TorchDynamoPlugin"]["mode"] == "'reduce-overhead'"
    assert it.accumulate(4)[0].differences == (CodeDifference("gradient_accumulation_steps", "2", "4"),)
    assert "accelerator.accumulate(net)" in code(it.accumulate(4))


def test_deepspeed():
    it = run("deepspeed", made_by=("deepspeed",), settings={"config": '"ds.json"'}, ranks=4)

    (half,) = it.half("bf16")
    assert (half.language, json.loads(half.code)) == ("json", {"bf16": {"enabled": True}})
    assert (half.file, half.line) == ("ds.json", None)
    size, batches = it.accumulate(4, 8)
    assert "batch_size=8" in size.code
    assert json.loads(batches.code) == {
        "gradient_accumulation_steps": 4,
        "train_micro_batch_size_per_gpu": 8,
        "train_batch_size": 8 * 4 * 4,
    }
    assert json.loads(it.fused()[0].code)["optimizer"] == {"type": "AdamW", "params": {"torch_adam": False}}
    assert json.loads(it.shard(2)[0].code)["zero_optimization"]["stage"] == 2


def test_deepspeed_config_in_program_is_located_at_its_call():
    (change,) = run("deepspeed").half("bf16")

    assert (change.file, change.line) == ("train.py", 7)
