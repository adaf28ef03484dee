"""DeepSpeed on the CPU; it is not in the extra `foreign`, because its first run compiles an extension for a minute."""

import pytest

pytestmark = pytest.mark.foreign("deepspeed")

DEEPSPEED = """
import deepspeed
from torch.utils.data.distributed import DistributedSampler

if __name__ == "__main__":
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))
    deepspeed.init_distributed("gloo")
    data = Rows(torch.randn(5120, 64), torch.randn(5120, 1))
    loader = DataLoader(data, 32, sampler=DistributedSampler(data), collate_fn=tuple)
    engine, optimizer, _, _ = deepspeed.initialize(
        model=model,
        model_parameters=model.parameters(),
        config={
            "train_micro_batch_size_per_gpu": 32,
            "gradient_accumulation_steps": 2,
            "gradient_clipping": 1.0,
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
            "zero_optimization": {"stage": int(sys.argv[1])},
            "steps_per_print": 1000,
        },
    )
    for epoch in range(2):
        for inputs, targets in loader:
            loss = nn.functional.mse_loss(engine(inputs), targets)
            engine.backward(loss)
            engine.step()
        tell(engine.global_rank, epoch, loss.item(), engine.global_steps)
    engine.save_checkpoint("state")
    torch.distributed.destroy_process_group()
"""


@pytest.mark.parametrize("stage", [0, 2])
def test_deepspeed_engine_is_recorded(judge, stage):
    found = judge(
        DEEPSPEED,
        stage,
        launcher=("torchrun", "--standalone", "--nproc-per-node", "2"),
        env={"DS_ACCELERATOR": "cpu"},
    )

    assert sorted((rank.rank, rank.world_size) for rank in found.ran.ranks) == [(0, 2), (1, 2)]
    for rank in (0, 1):
        steps = found.of(rank)
        assert [(step.micro_steps, step.batches) for step in steps] == [(2.0, 2.0)] * 80
        assert all(step.forward > 0 and step.backward > 0 and step.optimizer > 0 for step in steps)
    assert {found.flags(rank)["zero_stage"] for rank in (0, 1)} == {stage}
    for model in found.ran.facts("model"):
        assert (model.name, model.wrappers) == ("Sequential", ("DeepSpeedEngine",))
    for optimizer in found.ran.facts("optimizer"):
        assert optimizer.name == "AdamW"
        assert optimizer.place.via == optimizer.driven_by == ("deepspeed",)
    assert {model.variable for model in found.ran.facts("model")} == {"model"}
    assert {call.name for call in found.ran.facts("call")} == {"initialize"}
    assert {loader.training for loader in found.ran.facts("loader")} == {True}
