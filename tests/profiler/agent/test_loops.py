"""Real training loops, recorded as they run."""

from statistics import median

import pytest
from programs import NUMPY_TORCH, ON_RANKS, QUIET_TRACKER, ROOT, codes

from profiler.schema import (
    PHASES,
    TAG_CHECKPOINT,
    TAG_EPOCH_START,
    TAG_EVALUATION,
    TAG_FIRST,
    Place,
)

BEGIN = (
    NUMPY_TORCH
    + """
import copy, io, pickle, sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset
torch.set_num_threads(1)
torch.manual_seed(0)

class Slow(Dataset):
    def __init__(self, samples=48): self.samples = samples
    def __len__(self): return self.samples
    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.full((8,), index / 48)

class Model(nn.Module):
    def __init__(self, seconds=0.003):
        super().__init__()
        self.seconds = seconds
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    def forward(self, x):
        time.sleep(self.seconds)
        return self.layers(x)
"""
)
MADE = """
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

def train(loader):
    for batch in loader:
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
"""
SAMPLE = 0.002
FORWARD = 0.003


@pytest.fixture
def loop(tmp_path):
    """Return a function that writes a program of BEGIN and the given parts, and returns its path."""

    def write(*parts):
        path = tmp_path / "train.py"
        path.write_text("".join((BEGIN, *parts)))
        return path

    return write


def check(ran, steps):
    """Check that the run has `steps` steps, each partitioned into its phases; return the run."""
    assert (ran.status, ran.err.decode()) == (0, "")
    assert set(ran.problems) <= {"nvml"}
    assert len(ran.steps) == steps
    for step in ran.steps:
        parts = [getattr(step, phase) for phase in PHASES]
        assert sum(part for part in parts if part is not None) == pytest.approx(step.duration, rel=0.02, abs=1e-6)
    return ran


def tagged(ran, tag):
    return [step.index for step in ran.steps if step.tags & tag]


def steady(ran):
    return [step for step in ran.steps if not step.tags]


def line_of(path, text):
    (number,) = [number for number, line in enumerate(path.read_text().splitlines(), 1) if text in line]
    return Place(file=str(path), line=number)


def test_a_plain_loop(loop, run_profiled):
    program = loop(MADE, "loader = DataLoader(Slow(), 4)\nfor _ in range(2): train(loader)\n")
    ran = check(run_profiled(program), 24)

    assert tagged(ran, TAG_FIRST) == [0]
    assert tagged(ran, TAG_EPOCH_START) == [0, 12]
    assert [step.batches for step in ran.steps] == [1.0] * 24
    assert [step.micro_steps for step in ran.steps] == [1.0] * 24
    for step in steady(ran):
        assert step.data_wait >= 4 * SAMPLE
        assert step.loader_overhead == 0
        assert step.forward >= FORWARD
        assert step.backward > 0
        assert step.optimizer > 0
        assert (step.fetches_empty, step.queue_depth) == (1.0, None)
        assert step.evaluation == step.checkpoint_save == step.epoch_start == 0
    (loader,) = ran.facts("loader")
    assert (loader.dataset, loader.length, loader.batch_size, loader.num_workers) == ("Slow", None, 4, 0)
    assert (loader.batch_bytes, loader.batch_tensors, loader.training) == (4 * 8 * 4, 1, True)
    assert loader.place == line_of(program, "loader = DataLoader(")
    (model,) = ran.facts("model")
    assert (model.name, model.parameters, model.tensors) == ("Model", 8 * 16 + 16 + 16 + 1, 4)
    assert model.place == line_of(program, "model = Model(")
    (optimizer,) = ran.facts("optimizer")
    assert (optimizer.name, optimizer.parameters) == ("SGD", model.parameters)
    assert optimizer.place == line_of(program, "optimizer = torch.optim.SGD(")
    assert optimizer.callers == (optimizer.place,)
    assert (optimizer.driven_by, ran.facts("call")) == ((), [])
    assert (loader.variable, model.variable, optimizer.variable) == ("loader", "model", "optimizer")
    (flags,) = ran.facts("flags")
    assert (flags.packed, flags.anomaly, flags.threads_from) == (False, False, "program")
    (rank,) = ran.ranks
    assert (rank.rank, rank.world_size, rank.events_lost) == (0, 1, 0)
    assert not ran.workers


MANY = """
from torch.utils.data import BatchSampler, RandomSampler
class Iterators(BatchSampler):
    def __iter__(self): return (iter(each) for each in super().__iter__())

data = Slow(12)
for epoch in range(3): train(DataLoader(data, batch_sampler=BatchSampler(RandomSampler(data), 4, False)))
train(DataLoader(data, batch_sampler=Iterators(RandomSampler(data), 4, False)))
for number in range(300): next(iter(DataLoader([torch.ones(8)] * (number + 1))))
train(DataLoader(data, 4))
"""


def test_recreated_loaders_with_batch_samplers_are_reported_up_to_limit(loop, run_profiled):
    ran = check(run_profiled(loop(MADE, MANY)), 15)

    loaders = ran.facts("loader")
    assert len(loaders) == 256
    first = min(loaders, key=lambda loader: loader.id)
    assert (first.id, first.batch_size, first.sampler) == (1, 4, "RandomSampler")
    made = {batch.loader: batch.samples for batch in ran.tables.batches if batch.loader in (1, 2)}
    assert made == {1: 4.0, 2: 0.0}


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_batches_made_in_workers(loop, run_profiled, context):
    program = loop(
        QUIET_TRACKER,
        MADE,
        f"""
if __name__ == "__main__":
    loader = DataLoader(Slow(96), 4, num_workers=2, multiprocessing_context="{context}")
    for _ in range(2): train(loader)
""",
    )
    ran = check(run_profiled(program), 48)

    assert tagged(ran, TAG_EPOCH_START) == [0, 24]
    assert all(ran.steps[index].epoch_start > 0 for index in (0, 24))
    assert sorted(worker.worker_id for worker in ran.workers) == [0, 0, 1, 1]
    assert {worker.parent for worker in ran.workers} == {ran.ranks[0].pid}
    assert {batch.pid for batch in ran.tables.batches} == {worker.pid for worker in ran.workers}
    assert len(ran.tables.batches) == 48
    for batch in ran.tables.batches:
        assert batch.samples == 4
        assert batch.duration >= 4 * SAMPLE
        assert batch.cpu < batch.duration
        assert 0 < batch.collate < batch.duration
    assert median(batch.files for batch in ran.tables.batches) == 0
    assert {batch.loader for batch in ran.tables.batches} == {1 if context == "fork" else 0}
    for step in steady(ran):
        assert 0 <= step.queue_depth <= 4
        assert step.fetches_empty == (step.queue_depth == 0)
    (loader,) = ran.facts("loader")
    assert (loader.num_workers, loader.context, loader.training) == (2, context, True)
    assert loader.place == line_of(program, "loader = DataLoader(")


def test_a_compute_bound_loop_finds_its_batches_ready(loop, run_profiled):
    ran = check(
        run_profiled(
            loop(
                MADE,
                "model.seconds = 0.03\n",
                "train(DataLoader(Slow(160), 4, num_workers=2, prefetch_factor=4))\n",
            )
        ),
        40,
    )

    assert median(step.queue_depth for step in steady(ran)) >= 1
    assert median(step.data_wait for step in steady(ran)) == 0


COLLATES = """
def through_lists(samples):
    begin = time.thread_time()
    while time.thread_time() - begin < 0.02: pass  # and lets no other thread of the worker run
    return torch.stack(samples)

model.seconds = 0.01
data = [torch.ones(8)] * 160
train(DataLoader(data, 4, num_workers=1, collate_fn=through_lists))
"""


def test_batch_that_busy_worker_cannot_hand_over_counts_as_wait(loop, run_profiled):
    ran = check(run_profiled(loop(MADE, COLLATES)), 40)

    fetched = sum(step.fetch_host for step in steady(ran))
    assert sum(step.data_wait for step in steady(ran)) > 0.5 * fetched
    assert sum(step.fetches_empty for step in steady(ran)) > 0.5 * len(steady(ran))


def test_persistent_workers(loop, run_profiled):
    ran = check(
        run_profiled(
            loop(
                MADE,
                "loader = DataLoader(Slow(), 4, num_workers=2, persistent_workers=True)\n",
                "for _ in range(3): train(loader)\n",
            )
        ),
        36,
    )

    assert sorted(worker.worker_id for worker in ran.workers) == [0, 1]
    assert len(ran.tables.batches) == 36
    assert tagged(ran, TAG_EPOCH_START) == [0, 12, 24]
    assert ran.facts("loader")[0].persistent_workers


def test_an_endless_iterable_dataset_that_is_left_by_break(loop, run_profiled):
    ran = check(
        run_profiled(
            loop(
                MADE,
                """
class Endless(IterableDataset):
    def __iter__(self):
        while True:
            time.sleep(0.001)
            yield torch.ones(8)

for step, batch in enumerate(DataLoader(Endless(), 4, num_workers=1)):
    train([batch])
    if step == 19: break
""",
            )
        ),
        20,
    )

    (loader,) = ran.facts("loader")
    assert (loader.iterable, loader.length, loader.training) == (True, None, True)
    assert len(ran.tables.batches) >= 20
    assert [step.batches for step in ran.steps] == [1.0] * 20


def test_gradient_accumulation(loop, run_profiled):
    ran = check(
        run_profiled(
            loop(
                MADE,
                """
for step, batch in enumerate(DataLoader(Slow(96), 4), 1):
    (model(batch).square().mean() / 4).backward()
    if step % 4 == 0:
        optimizer.step()
        optimizer.zero_grad()
""",
            )
        ),
        6,
    )

    assert [(step.micro_steps, step.batches) for step in ran.steps] == [(4.0, 4.0)] * 6
    assert all(step.forward >= 4 * FORWARD for step in ran.steps)


def test_two_optimizers_make_one_step(loop, run_profiled):
    ran = check(
        run_profiled(
            loop(
                """
generator, critic = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8)), Model()
first = torch.optim.Adam(critic.parameters())
second = torch.optim.Adam(generator.parameters())
for real in DataLoader(Slow(), 4):
    fake = generator(torch.randn(4, 4))
    first.zero_grad()
    (critic(fake.detach()).mean() - critic(real).mean()).backward()
    first.step()
    second.zero_grad()
    (-critic(fake).mean()).backward()
    second.step()
"""
            )
        ),
        12,
    )

    assert [step.batches for step in ran.steps] == [1.0] * 12
    assert not tagged(ran, TAG_EVALUATION)
    assert all(step.forward >= 3 * FORWARD for step in ran.steps)
    assert len(ran.facts("optimizer")) == 2
    assert {model.name for model in ran.facts("model")} == {"Sequential", "Model"}


def test_lbfgs_runs_forward_and_backward_inside_its_step(loop, run_profiled):
    ran = check(
        run_profiled(
            loop(
                """
model = Model()
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
batch = torch.randn(4, 8)
def closure():
    optimizer.zero_grad()
    loss = model(batch).square().mean()
    loss.backward()
    return loss
for _ in range(8): optimizer.step(closure)
"""
            )
        ),
        8,
    )

    for step in ran.steps:
        assert step.forward >= FORWARD
        assert step.backward > 0
        assert step.optimizer > 0
        assert step.micro_steps >= 1


@pytest.mark.parametrize(("context", "grad"), [("torch.no_grad()", False), ("torch.enable_grad()", True)])
def test_validation_loop_is_measured_separately(loop, run_profiled, context, grad):
    ran = check(
        run_profiled(
            loop(
                MADE,
                f"""
training, validation = DataLoader(Slow(), 4), DataLoader(Slow(16), 4)
for _ in range(3):
    train(training)
    model.eval()
    with {context}:
        for batch in validation:
            model(batch).square().mean().item()
            time.sleep(0.02)
    model.train()
""",
            )
        ),
        36,
    )

    assert tagged(ran, TAG_EVALUATION) == [12, 24]
    for index in (12, 24):
        step = ran.steps[index]
        assert step.evaluation >= 4 * (4 * SAMPLE + FORWARD) + 3 * 0.02
        assert step.duration < step.evaluation
        assert step.batches == 1
    assert sorted(loader.training for loader in ran.facts("loader")) == [False, True]
    assert ran.facts("flags")[0].evaluation_grad is grad


def test_a_frozen_teacher_belongs_to_the_forward_pass(loop, run_profiled):
    ran = check(
        run_profiled(
            loop(
                MADE,
                """
teacher = Model(0.01).eval()
for batch in DataLoader(Slow(), 4):
    with torch.no_grad(): target = teacher(batch)
    (model(batch) - target).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
""",
            )
        ),
        12,
    )

    assert not tagged(ran, TAG_EVALUATION)
    assert all(step.forward >= 0.01 + FORWARD and step.evaluation == 0 for step in ran.steps)
    assert ran.facts("flags")[0].evaluation_grad is None


def test_checkpointing_is_measured_separately(loop, run_profiled):
    ran = check(
        run_profiled(
            loop(
                MADE,
                """
class Disk(io.BytesIO):
    def write(self, data):
        time.sleep(0.005)
        return super().write(data)

for step, batch in enumerate(DataLoader(Slow(), 4), 1):
    train([batch])
    if step % 5 == 0: torch.save(model.state_dict(), Disk())
""",
            )
        ),
        12,
    )

    assert tagged(ran, TAG_CHECKPOINT) == [5, 10]
    assert all(ran.steps[index].checkpoint_save >= 0.005 for index in (5, 10))


@pytest.mark.parametrize("reentrant", [False, True])
def test_autocast_scaler_and_activation_checkpointing_are_seen(loop, run_profiled, reentrant):
    ran = check(
        run_profiled(
            loop(
                MADE,
                f"REENTRANT = {reentrant}",
                """
from torch.utils.checkpoint import checkpoint
scaler = torch.amp.GradScaler("cpu")
for batch in DataLoader(Slow(), 4):
    with torch.autocast("cpu", torch.bfloat16):
        loss = checkpoint(model, batch.requires_grad_(), use_reentrant=REENTRANT).float().square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
""",
            )
        ),
        12,
    )

    (flags,) = ran.facts("flags")
    assert (flags.autocast, flags.autocast_dtype, flags.grad_scaler, flags.checkpointing) == (
        True,
        "bfloat16",
        True,
        True,
    )
    (scaler,) = ran.facts("scaler")
    assert (scaler.steps, scaler.skipped) == (12, 0)
    for step in ran.steps:
        assert step.forward >= FORWARD
        assert step.backward >= FORWARD  # checkpointing repeats the forward pass there
        assert step.micro_steps == 1


def test_packed_sequences_are_seen(loop, run_profiled):
    ran = check(
        run_profiled(
            loop(
                MADE,
                """
from torch.nn.utils.rnn import PackedSequence, pack_sequence
before = PackedSequence.__dict__["__new__"]
for number, batch in enumerate(DataLoader(Slow(), 4)):
    assert (PackedSequence.__dict__["__new__"] is before) is (number < 4)
    if number > 2: assert len(pack_sequence([batch[0], batch[1]])) == 4
    model(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
""",
            )
        ),
        12,
    )

    (flags,) = ran.facts("flags")
    assert flags.packed


def test_loop_without_an_optimizer_declares_its_steps(loop, run_profiled):
    program = loop(
        """
from profiler import region, step
model = Model()
for batch in DataLoader(Slow(), 4):
    with region("update"):
        loss = model(batch).square().mean()
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients): parameter -= 0.01 * gradient
    step()
"""
    )
    ran = check(run_profiled(program, env={"PYTHONPATH": str(ROOT)}), 12)

    for step in steady(ran):
        assert step.forward >= FORWARD
        assert step.backward > 0
        assert step.batches == 1
    assert not tagged(ran, TAG_EVALUATION)


def test_loop_without_detectable_steps_is_reported(loop, run_profiled):
    ran = run_profiled(loop("model = Model()\nfor batch in DataLoader(Slow(), 4): model(batch)\n"))

    assert ran.status == 0
    assert not ran.steps
    assert codes(ran, "steps") == ["unseen"]


COPIES = """
import pickletools, warnings
from torch.func import functional_call
warnings.simplefilter("ignore", FutureWarning)  # torch 2.15 deprecates tracing
if __name__ == "__main__":
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(6):
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(file, weights_only=False)):
        print(sorted(vars(copied)), copied(torch.ones(1, 8)).item())
    # Not its length, for each storage is named by its address, which may have a digit more.
    print(len(list(pickletools.genops(pickle.dumps(model)))), file.getbuffer().nbytes)
    print(len(pickle.dumps(optimizer.state_dict())))
    print(list(model.state_dict()), [name for name, _ in model.named_modules()], model)
    print(functional_call(model, dict(model.named_parameters()), (torch.ones(1, 8),)).item())
    print(torch.jit.trace(model, torch.ones(1, 8))(torch.ones(1, 8)).item())
    print(torch.export.export(model.layers, (torch.ones(1, 8),)).graph)
    print(pickle.loads(pickle.dumps(torch.save)) is torch.save, torch.save.__name__, torch.autograd.backward.__name__)
"""


REPLICAS = """
class Own(Model):
    def __deepcopy__(self, memo):
        copied = type(self).__new__(type(self))
        copied.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return copied

if __name__ == "__main__":
    model = Own()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(6):
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()
    for copied in (model._replicate_for_data_parallel(), copy.deepcopy(model)):  # as torch.nn.DataParallel makes one
        copied.layers = torch.nn.Linear(8, 1)
        torch.nn.init.constant_(copied.layers.weight, 2.0)
        print(copied(torch.ones(1, 8)).item())
"""


def test_copy_of_recorded_model_uses_its_own_layers(loop, run_both):
    plain, profiled = run_both(loop(REPLICAS))

    assert plain.status == 0
    assert plain.out.decode().splitlines() == profiled.out.decode().splitlines()
    check(profiled, 6)


def test_a_recorded_model_can_be_copied_saved_and_exported(loop, run_both):
    plain, profiled = run_both(loop(COPIES))

    assert plain.status == 0
    assert plain.out.decode().splitlines() == profiled.out.decode().splitlines()
    check(profiled, 6)


def test_each_rank_is_recorded(loop, start_profiled):
    program = loop(
        """
import torch.distributed as dist
dist.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(Model())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch in DataLoader(Slow(), 4):
    model(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
del model, optimizer
dist.destroy_process_group()
"""
    )
    ran = start_profiled(*ON_RANKS, 2, program).finish()

    assert ran.status == 0
    ranks = sorted(ran.ranks, key=lambda rank: rank.rank)
    assert [(rank.rank, rank.local_rank, rank.world_size) for rank in ranks] == [(0, 0, 2), (1, 1, 2)]
    for rank in ranks:
        assert len([step for step in ran.steps if step.pid == rank.pid]) == 12
    for model in ran.facts("model"):
        assert (model.name, model.wrappers) == ("Model", ("DistributedDataParallel",))
    assert len(ran.facts("flags")) == 2
    assert all(flags.ddp for flags in ran.facts("flags"))


ANOMALY = """
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def train(steps):
    for _ in range(steps):
        with around():
            model(torch.ones(2, 8)).sum().backward()
        optimizer.step()
detect, nothing = torch.autograd.detect_anomaly, contextlib.nullcontext
"""


@pytest.mark.parametrize(
    ("body", "on"),
    [
        ("around = detect; train(20)", True),
        ("around = nothing\nwith detect(): train(20)", True),
        ("around = nothing; torch.autograd.set_detect_anomaly(True); train(20)", True),
        ("around = detect; train(3); around = nothing; train(20)", False),
    ],
    ids=["around each step", "around all", "on", "only at first"],
)
def test_anomaly_detection_is_seen_wherever_it_is_switched_on(loop, run_profiled, body, on):
    ran = run_profiled(loop("import contextlib" + ANOMALY + body))

    assert ran.status == 0, ran.err
    (flags,) = ran.facts("flags")
    assert flags.anomaly is on


STARVES = """
import multiprocessing
class Computes(Dataset):
    def __len__(self): return 12
    def __getitem__(self, index):
        begin = time.thread_time()
        while time.thread_time() - begin < 0.02: pass
        return torch.zeros(8)
def spin():
    while True: pass
if __name__ == "__main__":
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rivals = [multiprocessing.Process(target=spin, daemon=True) for _ in range(3)]
    for rival in rivals: rival.start()
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Computes(), 1, num_workers=WORKERS)
    for _ in range(2):
        for batch in loader:
            model(batch).sum().backward()
            optimizer.step()
    for rival in rivals: rival.kill()
"""


@pytest.mark.parametrize("workers", [1, 0])
def test_cpu_starved_batch_does_not_look_like_a_wait_for_storage(loop, run_profiled, workers):
    ran = run_profiled(loop("import os" + STARVES.replace("WORKERS", str(workers))))

    assert ran.status == 0, ran.err
    first, *later = sorted(ran.tables.batches, key=lambda batch: batch.start)
    later = later[-10:]  # the second epoch, where a loader without workers is inspected one batch at a time
    assert sum(batch.duration for batch in later) > 1.5 * sum(batch.samples for batch in later) * 0.02
    # Four processes share one core, so it gets a quarter: the rest of its time it waits for the core, not for storage.
    assert sum(batch.cpu for batch in later) > 0.5 * sum(batch.duration for batch in later)
    assert first.cpu < first.duration
