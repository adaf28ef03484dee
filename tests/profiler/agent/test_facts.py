import json
import os
from dataclasses import fields
from types import SimpleNamespace

import pytest
import slurm_variables as slurm
import torch
from torch import nn

from profiler.agent import facts, look, start
from profiler.agent.session import Agent
from profiler.schema import FACTS, Process


def names(cls):
    return {field.name for field in fields(cls)}


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return x + self.linear(self.norm(x))


class Net(nn.Module):
    """A model with 6 * 4 + 3 * (8 + 20) + 4 * 2 + 2 = 118 parameters."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(6, 4, bias=False)
        self.body = nn.Module()
        self.body.blocks = nn.ModuleList(Block(4) for _ in range(3))
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        x = self.embed(x)
        for block in self.body.blocks:
            x = block(x)
        return self.head(x)


def compiled(module):
    return torch.compile(module, backend="eager")


class DistributedDataParallel(nn.Module):
    """A stand-in: the real class needs a process group."""

    def __init__(self, module):
        super().__init__()
        self.module = module


# ---- the model ----


def test_parameters_are_counted_by_dtype_and_device():
    net = Net()
    net.head.to(torch.bfloat16)
    net.embed.weight.requires_grad = False
    fact = facts.model(net, 7)
    assert (fact["id"], fact["name"]) == (7, "Net")
    assert (fact["parameters"], fact["trainable"], fact["tensors"]) == (118, 94, 3 * 4 + 2)
    assert fact["dtypes"] == {"float32": 108, "bfloat16": 10}
    assert fact["bytes"] == 108 * 4 + 10 * 2
    assert fact["devices"] == {"cpu": 118}


def test_the_repeated_block_is_found():
    fact = facts.model(Net(), 1)
    assert (fact["block"], fact["blocks"]) == ("Block", 3)
    assert fact["block_bytes"] == 28 * 4
    assert fact["modules"]["Block"] == 3
    assert fact["modules"]["Linear"] == 5


def test_repeated_block_with_most_parameters_in_total_is_chosen():
    net = nn.Module()
    net.small = nn.Sequential(*(Block(2) for _ in range(6)))
    net.large = nn.Sequential(Block(8), Block(8))
    fact = facts.model(net, 1)
    assert fact["blocks"] == 2


def test_repeated_layers_without_children_are_not_blocks():
    fact = facts.model(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), 1)
    assert "block" not in fact


@pytest.mark.parametrize(
    ("wrap", "wrappers"),
    [
        (lambda net: net, []),
        (DistributedDataParallel, ["DistributedDataParallel"]),
        (nn.DataParallel, ["DataParallel"]),
        (compiled, ["OptimizedModule"]),
        (
            lambda net: compiled(DistributedDataParallel(net)),
            ["OptimizedModule", "DistributedDataParallel"],
        ),
        (
            lambda net: DistributedDataParallel(compiled(net)),
            ["DistributedDataParallel", "OptimizedModule"],
        ),
    ],
)
def test_wrappers_are_named_outermost_first_and_unwrapped(wrap, wrappers):
    fact = facts.model(wrap(Net()), 1)
    assert fact["wrappers"] == wrappers
    assert (fact["name"], fact["parameters"], fact["blocks"]) == ("Net", 118, 3)
    assert fact["compiled"] == ("OptimizedModule" in wrappers)


def test_model_compiled_in_place_counts_as_compiled():
    net = Net()
    net.compile(backend="eager")
    fact = facts.model(net, 1)
    assert fact["compiled"] is True
    assert fact["name"] == "Net"


def test_classes_derived_by_fully_shard_are_unwrapped():
    """fully_shard creates a class with the bases FSDPModule and the module's own class."""
    shard = type("FSDPModule", (), {"__module__": "torch.distributed.fsdp._fully_shard._fully_shard"})
    module = Net()
    for each in (*module.body.blocks, module):
        each.__class__ = type(f"FSDP{type(each).__name__}", (shard, type(each)), {})
    fact = facts.model(compiled(module), 1)
    assert (fact["name"], fact["wrappers"]) == ("Net", ["OptimizedModule", "FSDPModule"])
    assert (fact["block"], fact["blocks"]) == ("Block", 3)
    assert fact["modules"]["Block"] == 3


def test_model_with_other_layers_beside_its_module_is_not_a_wrapper():
    net = nn.Module()
    net.module, net.head = Net(), nn.Linear(2, 2)
    assert facts.model(net, 1)["wrappers"] == []


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated")
def test_scripted_blocks_are_counted():
    """Their `_modules` is not a dictionary."""
    net = nn.Sequential(*(torch.jit.script(Block(4)) for _ in range(2)))
    assert facts.model(net, 1)["blocks"] == 2
    assert facts.sharding(net) is None


# ---- the optimizer ----


def train(net, optimizer):
    net(torch.ones(2, 6)).sum().backward()
    optimizer.step()


def test_optimizer_state_and_gradients_are_counted_after_a_step():
    net = Net()
    adam = torch.optim.AdamW(net.parameters(), lr=0.01, foreach=True)
    before = facts.optimizer(adam, 3, {"file": "train.py", "line": 5})
    assert (before["state_bytes"], before["gradient_bytes"]) == (0, 0)
    train(net, adam)
    fact = facts.optimizer(adam, 3, None)
    tensors = sum(1 for _ in net.parameters())
    assert fact["gradient_bytes"] == 118 * 4
    assert fact["state_bytes"] == 2 * 118 * 4 + tensors * 4  # two moments, and a step count per tensor
    assert (fact["name"], fact["module"]) == ("AdamW", "torch.optim.adamw")
    assert (fact["tensors"], fact["parameters"]) == (tensors, 118)
    assert (fact["lr"], fact["foreach"], fact["fused"]) == (0.01, True, None)
    assert (fact["device"], fact["floating"]) == ("cpu", True)
    assert before["place"] == {"file": "train.py", "line": 5}


class Shard(torch.Tensor):
    """A tensor laid out like torch's DTensor: the size of the whole, and this rank's shard."""

    __module__ = "torch.distributed.tensor"
    __slots__ = ["_local_tensor"]
    __torch_dispatch__ = classmethod(lambda *_: pytest.fail("was called"))

    @staticmethod
    def __new__(cls, whole, local):
        made = torch.Tensor._make_wrapper_subclass(cls, whole)
        made._local_tensor = local
        return made


def test_sharded_state_counts_only_the_local_shard():
    parameter = nn.Parameter(torch.ones(8))
    optimizer = torch.optim.SGD([parameter], momentum=0.9)
    optimizer.state[parameter]["momentum_buffer"] = Shard((8,), torch.ones(2))
    assert facts.optimizer(optimizer, 1, None)["state_bytes"] == 2 * 4


def a_tensor(elements, device):
    """Return the facts of a float32 tensor."""
    return look.TensorFacts(elements, elements * 4, elements * 4, "float32", torch.device(device), True, True)


def test_only_tensors_on_the_gpu_count_as_its_memory():
    """AdamW counts its steps on the host; an offloaded optimizer keeps all of its state there."""
    tensors = [a_tensor(8, "cuda:1"), a_tensor(8, "cpu"), a_tensor(1, "cpu")]
    assert facts.held_on_gpus(tensors) == {1: 8 * 4}


class Asked(torch.Tensor):
    """A tensor that computes its own size."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls):
        return torch.Tensor._make_wrapper_subclass(cls, (8,), dispatch_sizes_strides_policy="sizes")

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise AssertionError(f"{function} was called")


class Kept(torch.optim.SGD):
    param_groups = property(lambda self: self.kept, lambda self, groups: setattr(self, "kept", groups))


def test_sizes_that_need_user_code_are_left_out_and_flagged():
    net = nn.Linear(2, 2)
    assert facts.model(net, 1)["sized"]
    assert not facts.optimizer(Kept(net.parameters()), 1, None)["sized"]
    optimizer = torch.optim.SGD(net.parameters())
    assert facts.optimizer(optimizer, 1, None)["sized"]
    net._parameters["bias"] = optimizer.param_groups[0]["params"][1] = Asked()
    assert [facts.model(net, 1)[name] for name in ("sized", "parameters")] == [False, 4]
    assert [facts.optimizer(optimizer, 1, None)[name] for name in ("sized", "tensors", "parameters")] == [False, 2, 4]


def an_agent(fact, statistics):
    """Return an agent on two GPUs; `statistics` are the allocator's, by device."""
    torch_ = cuda(True)
    torch_.cuda.memory_stats = lambda device: statistics.get(device, {})
    torch_.cuda.mem_get_info = lambda device: (10 + device, 20)
    torch_._C = torch._C
    return SimpleNamespace(torch=torch_, fact=fact, problem=pytest.fail, is_capturing=lambda: False)


def test_memory_of_every_used_gpu_is_reported_and_its_peak_never_drops():
    """A program may reset torch's peaks."""
    handed = []
    statistics = {}
    agent = an_agent(lambda kind, body: handed.append((kind, body)), statistics)
    seen = start._Reported(agent, None)
    seen.memory()
    assert handed == []
    statistics[1] = {"reserved_bytes.all.peak": 9, "allocated_bytes.all.peak": 7, "allocated_bytes.all.current": 2}
    seen.memory()
    statistics[1] = {"reserved_bytes.all.peak": 3, "allocated_bytes.all.peak": 8, "allocated_bytes.all.current": 1}
    agent.is_capturing = lambda: True
    agent.torch.cuda.mem_get_info = pytest.fail
    seen.memory()
    first, second = [body for kind, body in handed if kind == "memory"]
    assert (first["id"], first["free"], first["total"]) == (1, 11, 20)
    assert (second["allocated_peak"], second["reserved_peak"], second["allocated"]) == (8, 9, 1)
    assert second["free"] is None
    assert [body["device"] for kind, body in handed if kind == "allocator"] == [1, 1]


@pytest.mark.parametrize(("on_gpu", "counted"), [(True, (8 * 4, 16 * 4)), (False, (0, 0))])
def test_the_memory_fact_leaves_out_what_was_offloaded(on_gpu, counted, monkeypatch):
    parameter = nn.Parameter(torch.ones(8))
    parameter.grad = torch.ones(8)
    adam = torch.optim.Adam([parameter])
    adam.state[parameter] = {"exp_avg": torch.ones(16)}
    monkeypatch.setattr(look, "tensor", lambda value: a_tensor(value.numel(), "cuda:1" if on_gpu else "cpu"))
    handed = {}
    agent = an_agent(lambda kind, body: handed.update({kind: body}), {1: {"reserved_bytes.all.peak": 5}})
    seen = start._Reported(agent, None)
    seen.optimizer(adam, 1, None)
    seen.memory()
    assert (handed["memory"]["gradients"], handed["memory"]["optimizer"]) == counted
    assert handed["optimizer"]["state_bytes"] == 16 * 4

    del adam
    seen.memory()
    assert (handed["memory"]["gradients"], handed["memory"]["optimizer"]) == counted, "the peak was with it"
    seen._peaks.clear()
    seen.memory()
    assert (handed["memory"]["gradients"], handed["memory"]["optimizer"]) == (0, 0), "it is gone"


def test_optimizer_with_complex_parameters_is_not_floating():
    net, extra = Net(), nn.Parameter(torch.ones(2, dtype=torch.complex64))
    sgd = torch.optim.SGD([{"params": net.parameters()}, {"params": [extra], "lr": torch.tensor(0.1)}], lr=0.5)
    fact = facts.optimizer(sgd, 1, None)
    assert (fact["lr"], fact["floating"]) == (0.5, False)


def test_a_learning_rate_in_a_tensor_is_left_out():
    """Reading it could wait for a device."""
    adam = torch.optim.Adam(Net().parameters(), lr=torch.tensor(0.01), capturable=False, foreach=False)
    assert facts.optimizer(adam, 1, None)["lr"] is None


# ---- flags, process, devices ----


def test_flags_are_those_of_torch_and_the_environment(monkeypatch):
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL")
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)
    fact = facts.flags(torch, {"autocast": True})
    assert fact["launch_blocking"] is True
    assert fact["distributed_debug"] == "DETAIL"
    assert fact["allocator_config"] == "expandable_segments:True"
    assert fact["autocast"] is True
    assert fact["deterministic"] is False
    assert fact["allow_tf32"] is torch.backends.cuda.matmul.allow_tf32
    assert fact["threads"] == torch.get_num_threads()


@pytest.mark.parametrize("value", ["", "0"])
def test_launch_blocking_switched_off_is_off(monkeypatch, value):
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", value)
    assert facts.flags(torch, {})["launch_blocking"] is False


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, (0, 0, 1, 0)),
        ({"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "GROUP_RANK": "1"}, (5, 1, 8, 1)),
        (slurm.STEP, (3, 1, 4, 1)),
        (slurm.PMI2, (3, 1, 4, 1)),
        (slurm.ONE, (0, 0, 1, 0)),
        (slurm.BATCH, (0, 0, 1, 0)),
        (slurm.OPEN_MPI, (3, 1, 4, 1)),
        (slurm.HYDRA, (3, 1, 4, 1)),
        (slurm.HYDRA_HERE, (1, 1, 2, 0)),
        ({"RANK": "x", "OMPI_COMM_WORLD_RANK": "2", "WORLD_SIZE": "0"}, (2, 0, 1, 0)),
    ],
)
def test_a_process_knows_its_rank_from_its_launcher(monkeypatch, variables, expected):
    for name in list(os.environ):
        if name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "GROUP_RANK", "NODE_RANK") or name.startswith(
            ("SLURM", "OMPI", "PMI", "MPI_")
        ):
            monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    fact = facts.process(torch)
    assert (fact["rank"], fact["local_rank"], fact["world_size"], fact["node_rank"]) == expected
    assert (fact["role"], fact["worker_id"]) == ("rank", None)


def test_worker_is_recognized_by_torch_worker_info(monkeypatch):
    from torch.utils.data._utils import worker

    monkeypatch.setattr(worker, "_worker_info", SimpleNamespace(id=3))
    fact = facts.process(torch)
    assert (fact["role"], fact["worker_id"]) == ("worker", 3)


def cuda(initialized):
    properties = SimpleNamespace(name="H200", uuid="abc", major=9, minor=0, total_memory=150, multi_processor_count=132)
    return SimpleNamespace(
        cuda=SimpleNamespace(
            is_initialized=lambda: initialized,
            device_count=lambda: 2,
            get_device_properties=lambda index: properties,
            get_arch_list=lambda: ["sm_90"],
        )
    )


def test_cuda_is_not_touched_before_the_program_has_initialized_it():
    assert facts.devices(cuda(False)) == []
    assert [fact["id"] for fact in facts.devices(cuda(True))] == [0, 1]


# ---- reported and stored keys are the same ----


@pytest.fixture
def keys_of_facts(tmp_path, monkeypatch):
    """Return the keys of every fact that a small training with all hooks installed reports, by kind."""
    handed = {}

    class Listening(Agent):
        def fact(self, kind, body):
            handed.setdefault(kind, set()).update(json.loads(json.dumps(body, default=str)))

    monkeypatch.setattr(start, "Agent", Listening)
    agent = start.begin({"rings": str(tmp_path)})
    try:
        net = Net()
        optimizer = torch.optim.Adam(net.parameters())
        scaler = torch.amp.GradScaler("cpu")
        for (x,) in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(24, 6)), batch_size=2):
            with torch.autocast("cpu"):
                loss = net(x).sum()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        agent.flush()
        agent.tick()
    finally:
        start.end()
    return handed


def test_every_reported_key_is_a_field_of_its_kind(keys_of_facts):
    assert {"loader", "model", "optimizer", "flags", "scaler", "output"} <= set(keys_of_facts)
    for kind, keys in keys_of_facts.items():
        if kind in FACTS:
            assert keys <= names(FACTS[kind]), kind


def test_process_fact_has_only_fields_of_its_row(keys_of_facts):
    assert keys_of_facts["process"] <= names(Process)


def test_device_and_memory_facts_have_only_fields_of_their_kinds():
    for fact in facts.devices(cuda(True)):
        assert set(fact) <= names(FACTS["device"])
    handed = {}
    agent = an_agent(lambda kind, body: handed.update({kind: set(body)}), {0: {"reserved_bytes.all.peak": 5}})
    seen = start._Reported(agent, None)
    seen.devices()
    seen.memory()
    assert handed["memory"] <= names(FACTS["memory"])
    assert {"device", "memory", "allocator"} == set(handed)
