"""Training loops, each with one known fault or none, and the advice that their traces must lead to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from made import (
    ADD,
    BF16_GEMM,
    DGEMM,
    EFFICIENT,
    FLASH,
    FOREACH,
    LOG_SOFTMAX,
    NLL_LOSS,
    NORM,
    REDUCE,
    SGEMM,
    SOFTMAX,
    STRIDED,
    TF32_GEMM,
    Loop,
)

STEPS = 4


@dataclass(frozen=True)
class Labeled:
    """A trace for which the right first advice is known."""

    name: str
    right: tuple[str, ...]
    """Rules that are right as the first advice; empty if the loop is healthy."""
    why: str
    make: Callable[[], Loop]


TABLE: list[Labeled] = []


def program(*right: str, why: str) -> Callable[[Callable[[], Loop]], Callable[[], Loop]]:
    """Register the decorated function, named after the program."""

    def register(make: Callable[[], Loop]) -> Callable[[], Loop]:
        TABLE.append(Labeled(make.__name__, right, why, make))
        return make

    return register


def transformer(
    loop: Loop,
    *,
    layers: int = 12,
    gemm: str = BF16_GEMM,
    rate: float = 200.0,
    product: float = 400.0,
    elementwise: float = 60.0,
    attention: Callable[[Loop], None] | None = None,
    update: Callable[[Loop], None] | None = None,
    gradients: Callable[[Loop, int], None] | None = None,
    before: Callable[[Loop], None] | None = None,
    after: Callable[[Loop], None] | None = None,
    within: Callable[[Loop], None] | None = None,
) -> Loop:
    """Run steps of a transformer; times are microseconds of a kernel, and matmuls reach `rate` TFLOP/s.

    A layer has four matmuls, an attention and four elementwise kernels; a backward pass takes twice the time.
    """
    dtype = "float" if gemm != BF16_GEMM else "c10::BFloat16"
    rows = 8 * max(1, round(product * rate * 1e6 / (2 * 1024 * 4096) / 8))
    shapes = [[4096], [rows, 1024], [1024, 4096]]

    def layer(factor: float) -> None:
        for _ in range(4):
            loop.op("aten::addmm", gemm, product * factor, shapes=shapes, dtype=dtype)
            loop.op("aten::add", ADD, elementwise * factor, dtype=dtype)
        if attention:
            attention(loop)
        else:
            loop.op("aten::_flash_attention_forward", FLASH, 300 * factor)
        loop.op("aten::native_layer_norm", NORM, elementwise * factor)
        if within:
            within(loop)

    def forward() -> None:
        for _ in range(layers):
            layer(1.0)

    def backward() -> None:
        for number in range(layers):
            layer(2.0)
            if gradients:
                gradients(loop, number)

    def step() -> None:
        if before:
            before(loop)
        loop.forward(forward)
        loop.backward(backward)
        loop.join()
        loop.optimizer(lambda: (update or fused)(loop))
        if after:
            after(loop)

    loop.steps(STEPS, step)
    return loop


def fused(loop: Loop) -> None:
    """Update all parameters in a few kernels."""
    for _ in range(8):
        loop.op("aten::_fused_adamw_", f"{FOREACH[:-1]}, FusedAdamMathFunctor<float, 4>>", 150)


@program(why="large bf16 matmuls, flash attention, a fused update, batches ready: the GPU is never idle")
def healthy_bf16() -> Loop:
    return transformer(Loop("H100"))


@program(why="as above, with pinned copies that are hidden behind computing")
def healthy_with_copies() -> Loop:
    return transformer(Loop("A100"), before=lambda loop: (loop.fetch(30, workers=True), loop.copy(40, pinned=True)))


@program(why="all-reduces in buckets, hidden behind the backward pass")
def healthy_distributed() -> Loop:
    return transformer(Loop("A100", ranks=8), gradients=lambda loop, number: loop.reduce(1500, 40_000_000, hidden=True))


@program(why="one .item() at the end of a step of 80 ms: the queue is full again in microseconds")
def healthy_with_one_item() -> Loop:
    return transformer(Loop("H100"), after=lambda loop: loop.item())


@program("precision-bf16", "precision-tf32", why="fp32 matmuls without tensor cores take nine tenths of the step")
def fp32_matmuls() -> Loop:
    return transformer(Loop("A100"), gemm=SGEMM, product=2400, rate=15)


@program("precision-bf16", why="TF32 matmuls take most of the step; bf16 has twice the rate")
def tf32_matmuls() -> Loop:
    return transformer(Loop("H100"), gemm=TF32_GEMM, product=1200, rate=250)


@program("precision-fp16-scaler", why="fp32 on a GPU whose tensor cores compute fp16, not bf16")
def fp32_on_volta() -> Loop:
    return transformer(Loop("V100"), gemm="volta_sgemm_128x64_tn", product=2400, rate=12)


@program("launch-bound-graphs", "compile-model", why="kernels of 4 us, of which the host launches one every 12 us")
def tiny_kernels() -> Loop:
    return transformer(Loop("H100"), layers=24, product=4, elementwise=2, attention=tiny_attention)


def tiny_attention(loop: Loop) -> None:
    loop.op("aten::_flash_attention_forward", FLASH, 5)


@program("compile-model", "launch-bound-graphs", why="kernels of 30 us under a host that takes 45 us for each")
def slow_host() -> Loop:
    return transformer(
        Loop("A100"), product=30, elementwise=12, attention=tiny_attention, within=lambda loop: loop.work(300)
    )


@program("compile-model", why="half of the GPU's time goes into elementwise kernels that a compiler fuses")
def elementwise() -> Loop:
    return transformer(Loop("A100"), product=300, elementwise=600)


@program("host-stall", "host-sync-item", why="20 ms of Python in each step of 60 ms, in which nothing is launched")
def python_between() -> Loop:
    return transformer(Loop("A100"), after=lambda loop: (loop.item(), loop.work(20_000)))


@program("host-stall", why="the host spends 2 ms between the layers, with nothing queued")
def python_within() -> Loop:
    return transformer(Loop("A100"), product=100, elementwise=10, within=lambda loop: loop.work(2_500))


@program("host-sync-item", why="a value is read back in every layer: the queue runs dry each time")
def item_in_every_layer() -> Loop:
    return transformer(
        Loop("A100"),
        product=60,
        elementwise=20,
        attention=tiny_attention,
        within=lambda loop: (loop.item(), loop.work(60)),
    )


@program("data-wait-traced", why="60 % of the step is a fetch in the training process: the loader has no workers")
def fetches_itself() -> Loop:
    return transformer(Loop("A100"), before=lambda loop: (loop.item(), loop.fetch(100_000, workers=False)))


@program("data-wait-traced", why="60 % of the step is waiting for the loader's workers")
def waits_for_workers() -> Loop:
    return transformer(Loop("A100"), before=lambda loop: (loop.item(), loop.fetch(100_000, workers=True)))


@program("data-pin-memory", why="30 % of the step is a copy from pageable memory, during which nothing computes")
def pageable_copies() -> Loop:
    return transformer(Loop("A100"), before=lambda loop: loop.copy(30_000))


@program("h2d-overlap", why="30 % of the step is a copy from pinned memory that nothing hides")
def exposed_copies() -> Loop:
    return transformer(Loop("A100"), before=lambda loop: loop.copy(30_000, pinned=True))


@program("comm-overlap", "ddp-not-dataparallel", why="gradients are reduced after the backward pass, 35 % of the step")
def reduces_at_the_end() -> Loop:
    def update(loop: Loop) -> None:
        for _ in range(12):
            loop.reduce(3_000, 40_000_000, hidden=False)
        loop.join()
        fused(loop)

    return transformer(Loop("A100", ranks=8), update=update)


@program("comm-compress-bf16", "comm-overlap", "accum-amortize", why="hidden as far as can be, and still 40 % longer")
def slow_network() -> Loop:
    return transformer(
        Loop("A100", ranks=16), gradients=lambda loop, number: loop.reduce(9_000, 40_000_000, hidden=True)
    )


@program("sdpa-flash", why="attention that writes its scores: a bmm, a softmax and a bmm over 4096 tokens")
def materialized_attention() -> Loop:
    def attention(loop: Loop) -> None:
        heads = [[64, 4096, 64], [64, 64, 4096]]
        loop.op("aten::bmm", BF16_GEMM, 700, shapes=heads)
        loop.op("aten::_softmax", SOFTMAX, 1100, shapes=[[4, 16, 4096, 4096]])
        loop.op("aten::bmm", BF16_GEMM, 700, shapes=[[64, 4096, 4096], [64, 4096, 64]])

    return transformer(Loop("A100"), attention=attention)


@program("optimizer-fused", why="25 % of the step is an update that launches twelve kernels for each of 150 tensors")
def looping_optimizer() -> Loop:
    def update(loop: Loop) -> None:
        for _ in range(150):
            for _ in range(12):
                loop.op("aten::mul_", ADD, 8, host=14)

    return transformer(Loop("A100"), update=update)


@program("channels-last", why="convolutions in NHWC kernels with a conversion before and after each")
def layout_conversions() -> Loop:
    loop = Loop("A100")
    conv = "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4_tensor16x8x16"

    def block(factor: float) -> None:
        loop.op("aten::cudnn_convolution", "void nchwToNhwcKernel<__nv_bfloat16, __nv_bfloat16, float>", 60 * factor)
        loop.op("aten::cudnn_convolution", conv, 400 * factor)
        loop.op("aten::cudnn_convolution", "void nhwcToNchwKernel<__nv_bfloat16, __nv_bfloat16, float>", 60 * factor)
        loop.op("aten::relu_", ADD, 25 * factor)

    def step() -> None:
        loop.forward(lambda: [block(1) for _ in range(40)] and None)
        loop.backward(lambda: [block(2) for _ in range(40)] and None)
        loop.optimizer(lambda: fused(loop), "SGD")

    loop.steps(STEPS, step)
    return loop


@program("alloc-churn", why="the cache is emptied in every step: cudaFree and cudaMalloc take a quarter of it")
def empties_the_cache() -> Loop:
    def within(loop: Loop) -> None:
        loop.call("cudaFree", 400)
        loop.call("cudaMalloc", 700)

    return transformer(Loop("A100"), product=200, within=within)


@program(why="the same calls once, in the first of the steps")
def healthy_first_allocations() -> Loop:
    made = Loop("A100")

    def before(loop: Loop) -> None:
        if loop.now < 1000:
            for _ in range(20):
                loop.call("cudaMalloc", 300)

    return transformer(made, before=before)


@program(why="batches are ready, but for a wait of 50 ms at the start of an epoch")
def healthy_start_of_an_epoch() -> Loop:
    waits = iter((50_000, 40, 40, 40))
    return transformer(Loop("H100"), before=lambda loop: loop.fetch(next(waits), workers=True))


@program(
    "precision-bf16", "precision-tf32", why="fp32 matmuls on AMD's matrix cores, which do bf16 at eight times that rate"
)
def fp32_on_amd() -> Loop:
    name = "Cijk_Ailk_Bljk_SB_MT128x128x16_MI32x32x2x1_SN_K1"
    return transformer(Loop("MI300X"), gemm=name, product=1200, rate=90)


@program("launch-bound-graphs", "compile-model", why="tiny kernels on AMD, with a launch every 12 us")
def tiny_kernels_on_amd() -> Loop:
    return transformer(Loop("MI300X"), layers=24, product=4, elementwise=2, attention=tiny_attention)


@program("comm-overlap", why="each layer gathers its weights and computes only then: 40 % of the step is exposed")
def gathers_before_each_layer() -> Loop:
    def within(loop: Loop) -> None:
        loop.reduce(2_000, 30_000_000, hidden=False)
        loop.join()

    return transformer(Loop("H100", ranks=8), within=within)


@program("host-sync-item", why="a device-wide synchronize after each layer, as timing code does")
def synchronizes() -> Loop:
    def within(loop: Loop) -> None:
        loop.call("cudaDeviceSynchronize", 5)
        loop.work(300)

    return transformer(Loop("A100"), product=60, elementwise=20, attention=tiny_attention, within=within)


@program("fused-ce", "compile-model", why="logits of 16,384 tokens over 128,256 words are written, and read six times")
def large_vocabulary() -> Loop:
    logits = [[16384, 128256]]

    def loss(loop: Loop) -> None:
        loop.op("aten::mm", BF16_GEMM, 8_000, shapes=[[16384, 4096], [4096, 128256]])
        loop.op("aten::_log_softmax", LOG_SOFTMAX, 6_000, shapes=logits, dtype="float")
        loop.op("aten::nll_loss_forward", NLL_LOSS, 60, shapes=logits, dtype="float")
        loop.op("aten::_log_softmax_backward_data", LOG_SOFTMAX, 8_000, shapes=logits, dtype="float")

    def step_before(loop: Loop) -> None:
        loss(loop)

    return transformer(Loop("A100"), before=step_before)


@program("dims-align", why="half of the step in matmuls over 50,257 words, at less than half of the others' rate")
def odd_vocabulary() -> Loop:
    def head(loop: Loop) -> None:
        for _ in range(3):
            loop.op("aten::mm", BF16_GEMM, 30_000, shapes=[[16384, 1024], [1024, 50257]])

    return transformer(Loop("A100"), before=head)


@program("precision-fp64", why="matmuls in double precision by accident: half of the step")
def double_precision() -> Loop:
    def within(loop: Loop) -> None:
        loop.op("aten::mm", DGEMM, 4_000, shapes=[[1024, 1024], [1024, 1024]], dtype="double")

    return transformer(Loop("A100"), within=within)


@program("comm-slow-link", "comm-overlap", "comm-compress-bf16", why="80 MB are reduced at 1 GB/s: over sockets")
def reduces_over_sockets() -> Loop:
    return transformer(
        Loop("A100", ranks=8), gradients=lambda loop, number: loop.reduce(80_000, 40_000_000, hidden=True)
    )


@program("attention-backend", why="40 % of the step in the memory-efficient kernel, because of a dense mask")
def masked_attention() -> Loop:
    shapes = [*[[4, 4096, 16, 64]] * 3, [4, 16, 4096, 4096], *[[]] * 6]
    values = ["", "", "", "", "", "", "", "", "0.0", "0"]

    def attention(loop: Loop) -> None:
        loop.op("aten::_efficient_attention_forward", EFFICIENT, 3_000, shapes=shapes, values=values)

    return transformer(Loop("A100"), attention=attention)


@program("layout-copies", why="30 % of the step in contiguous(): each head's queries are transposed and written again")
def transposes() -> Loop:
    def within(loop: Loop) -> None:
        for _ in range(3):
            loop.inside("aten::contiguous", lambda: loop.inside("aten::clone", lambda: copied(loop)))

    def copied(loop: Loop) -> None:
        loop.op("aten::copy_", STRIDED, 400, shapes=[[8, 16, 2048, 64]] * 2)

    return transformer(Loop("A100"), within=within)


@program("comm-overlap", why="300 all-reduces a step, one for each tensor, after the backward pass: latency, not bytes")
def reduces_each_tensor() -> Loop:
    def update(loop: Loop) -> None:
        for _ in range(300):
            loop.reduce(180, 200_000, hidden=False)
        loop.join()
        fused(loop)

    return transformer(Loop("A100", ranks=8), update=update)


@program("ddp-bucket-view", why="200 gradients are copied back from DDP's buckets, one every 120 us, in each step")
def copies_gradients_back() -> Loop:
    name = "torch.distributed.ddp.reducer::copy_bucket_to_grad"

    def update(loop: Loop) -> None:
        loop.item()
        for _ in range(200):
            loop.inside(name, lambda: loop.op("aten::copy_", "Memcpy DtoD (Device -> Device)", 3, host=110))
        fused(loop)

    return transformer(Loop("A100", ranks=8), update=update)


@program(why="half of the step is idle although kernels are queued: the cause is not in the program")
def another_program_on_the_gpu() -> Loop:
    return transformer(Loop("A100"), within=lambda loop: loop.hold(2_000))


@program(why="large matmuls at two thirds of the peak on a B200; 8-bit floats are the user's choice")
def healthy_on_blackwell() -> Loop:
    gemm = "nvjet_tst_256x256_64x4_2x1_2cta_v_bz_TNT"
    large = [[16384, 8192], [8192, 8192]]
    return transformer(
        Loop("B200"),
        gemm=gemm,
        product=300,
        rate=1500,
        within=lambda loop: loop.op("aten::mm", gemm, 1500, shapes=large),
    )


@program("batch-matmuls", why="64 heads are multiplied one by one in each layer, at a twentieth of the peak rate")
def heads_one_by_one() -> Loop:
    def within(loop: Loop) -> None:
        for _ in range(64):
            loop.op("aten::mm", BF16_GEMM, 14, shapes=[[2048, 64], [64, 512]])

    return transformer(Loop("A100"), within=within)


@program("batch-matmuls", why="the same heads, each in 5 us, with a launch every 12 us")
def heads_launched_late() -> Loop:
    def within(loop: Loop) -> None:
        for _ in range(96):
            loop.op("aten::mm", BF16_GEMM, 5, shapes=[[512, 64], [64, 512]])

    return transformer(Loop("A100"), product=100, elementwise=15, attention=tiny_attention, within=within)


@program(why="query, key and value are three small matmuls in a row, as in most models")
def healthy_query_key_value() -> Loop:
    def within(loop: Loop) -> None:
        for _ in range(3):
            loop.op("aten::mm", BF16_GEMM, 80, shapes=[[2048, 1024], [1024, 512]])

    return transformer(Loop("A100"), within=within)


@program(why="a recurrent layer: each of its small matmuls needs the result of the one before")
def healthy_recurrent() -> Loop:
    def within(loop: Loop) -> None:
        for _ in range(64):
            loop.op("aten::mm", BF16_GEMM, 40, shapes=[[64, 512], [512, 2048]])
            loop.op("aten::tanh", ADD, 6)

    return transformer(Loop("A100"), within=within)


def rms_norm(loop: Loop, shape: list[int], pass_over: float) -> None:
    """Normalize as transformer models do; `pass_over` is the time in us to read or write the tensor in 16 bits."""
    rows, once = [*shape[:-1], 1], pass_over

    def cast(dtype: str) -> None:
        copy = lambda: loop.op("aten::copy_", ADD, 3 * once, shapes=[shape, shape], dtype=dtype)  # noqa: E731
        loop.inside("aten::to", lambda: loop.inside("aten::_to_copy", copy))

    cast("float")
    loop.op("aten::pow", ADD, 4 * once, shapes=[shape, []], dtype="float")
    loop.op("aten::mean", REDUCE, 2 * once, shapes=[shape, [], []], dtype="float")
    loop.op("aten::add", ADD, 3, shapes=[rows, []], dtype="float")
    loop.op("aten::rsqrt", ADD, 3, shapes=[rows], dtype="float")
    loop.op("aten::mul", ADD, 4 * once, shapes=[shape, rows], dtype="float")
    cast("c10::BFloat16")
    loop.op("aten::mul", ADD, 2 * once, shapes=[shape[-1:], shape])


@program("unfused-norm", why="a normalization of eight kernels in each layer: 16 % of the step, a tenth of it needed")
def unfused_normalization() -> Loop:
    return transformer(Loop("A100"), within=lambda loop: rms_norm(loop, [4, 2048, 2048], 20))


@program(why="the same normalization of a small tensor: 3 % of the step")
def healthy_small_normalization() -> Loop:
    return transformer(Loop("A100"), within=lambda loop: rms_norm(loop, [4, 2048, 256], 2.5))


@program(why="a compiled language model: fused kernels, flash attention, a fused update, and a full queue")
def healthy_compiled() -> Loop:
    loop = Loop("A100")

    def region(number: int, factor: float) -> None:
        for _ in range(12):
            for _ in range(4):
                loop.op("aten::mm", BF16_GEMM, 350 * factor, shapes=[[16384, 1024], [1024, 4096]])
                loop.op(
                    f"triton_red_fused_add_native_layer_norm_{number}", "triton_red_fused_add_native_layer_norm_1", 110
                )
            loop.op("aten::_flash_attention_forward", FLASH, 300 * factor)

    def step() -> None:
        loop.fetch(20, workers=True)
        loop.inside("Torch-Compiled Region: 0/0", lambda: region(1, 1.0))
        loop.backward(lambda: loop.inside("CompiledFunctionBackward", lambda: region(2, 2.0)))
        loop.optimizer(lambda: fused(loop))

    loop.steps(STEPS, step)
    return loop


@program(why="FSDP2: the next block's weights are gathered while this one computes, and gradients reduced likewise")
def healthy_sharded() -> Loop:
    return transformer(
        Loop("H100", ranks=8),
        within=lambda loop: loop.gather(900, 100_000_000),
        gradients=lambda loop, number: loop.reduce(700, 50_000_000, hidden=True),
    )


@program(why="inference of single tokens: kernels of a few us, replayed from a CUDA graph without gaps")
def healthy_decoding() -> Loop:
    loop = Loop("H100")
    layer = [(BF16_GEMM, 9.0), (FLASH, 6.0), (BF16_GEMM, 7.0), (NORM, 3.0), (BF16_GEMM, 18.0), (ADD, 3.0)]

    def token() -> None:
        loop.replay(layer * 32)
        loop.op("aten::argmax", REDUCE, 12, shapes=[[64, 128256]], dtype="float")
        loop.copy(4, pinned=True)

    loop.steps(8, token)
    return loop


@program(why="inference of long prompts: large matmuls and fused kernels, no steps marked")
def healthy_prefill() -> Loop:
    loop = Loop("MI300X")
    for _ in range(160):
        loop.op("aten::mm", "Cijk_Alik_Bljk_BBS_BH_MT256x256x64_MI16x16x1", 900, shapes=[[16384, 4096], [4096, 6144]])
        loop.op("vllm::unified_attention_with_output", "ck_tile::fmha_fwd_kernel<bf16>", 500)
        loop.op("_C::fused_add_rms_norm", "void vllm::fused_add_rms_norm_kernel<c10::BFloat16>", 60)
    return loop


@program("optimizer-fused", why="a sixth of the step in foreach kernels that move each tensor several times")
def foreach_optimizer() -> Loop:
    def update(loop: Loop) -> None:
        tensors = [[4096, 4096]] * 12
        for name, lists in (("lerp_", 2), ("mul_", 1), ("addcmul_", 3), ("sqrt", 1), ("div_", 1), ("add_", 1)):
            loop.op(f"aten::_foreach_{name}", FOREACH, 2_000, shapes=[tensors] * lists, dtype="float")
        loop.op("aten::_foreach_addcdiv_", FOREACH, 2_500, shapes=[tensors] * 3, dtype="float")

    return transformer(Loop("A100"), update=update)
