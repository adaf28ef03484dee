"""Public traces of real machines, from Holistic Trace Analysis and TraceLens, labeled by hand."""

LABELS: dict[str, tuple[tuple[str, ...], str]] = {
    "hta_alexnet": ((), "the start of a program: one gap of ten seconds, and the only kernels come once"),
    "hta_cpu_only_rank-34": ((), "no GPU work, and one step of which a single operator is recorded"),
    "hta_cupti": ((), "host operators only"),
    "hta_df_index_resolver": (
        ("launch-bound-graphs", "compile-model", "comm-overlap"),
        "idle for 42 % because launches of kernels of a few us come late; 21 % in collectives that nothing hides",
    ),
    "hta_mi250": ((), "14 kernels: too few to say anything for certain"),
    "hta_nccl": (
        ("compile-model", "launch-bound-graphs", "host-stall"),
        "idle for 76 %, most of it in short gaps between small kernels, a quarter of the step in gaps above 1 ms",
    ),
    "hta_negative_queue_rank0": (
        ("precision-bf16", "comm-overlap"),
        "fp32 matmuls on an A100, and all-to-alls that nothing hides; much idle time although work is queued",
    ),
    "hta_sampled_rank-0": (
        ("host-stall", "comm-overlap"),
        "a quarter of the step in gaps above 1 ms, and 26 % in collectives that nothing hides",
    ),
    "hta_sampled_rank-1": (("host-stall", "comm-overlap"), "the same job's other rank"),
    "hta_triton": ((), "one kernel, after 13 s of compiling"),
    "tracelens_b200_eager": (
        ("launch-bound-graphs", "compile-model"),
        "an eager loop on a B200: idle for 86 % between kernels of a few us",
    ),
    "tracelens_compile_triton": ((), "12 kernels without a gap"),
    "tracelens_h100_bert": (
        ("launch-bound-graphs", "compile-model"),
        "inference with one batch: kernels of 2 us, one every 30 us",
    ),
    "tracelens_h100_timesformer": (
        ("sdpa-flash",),
        "a third of the step in attention by bmm, softmax and bmm over 3137 tokens; the gap at its start is warm-up",
    ),
    "tracelens_mi300_bert": (
        ("launch-bound-graphs", "compile-model"),
        "as on the H100: kernels of 3 us that the host launches late",
    ),
    "tracelens_normalization": ((), "a benchmark of single kernels with pauses between them"),
}
"""By file name without suffix: the rules that are right as the first advice, and why. Where there are none, there is
nothing to insist on."""
