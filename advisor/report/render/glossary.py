"""Explain the report's less common words in a sentence or two; metrics explain themselves."""

GLOSSARY = {
    "Mean step": "The mean time from one parameter update to the next, over the steady steps. Below it: the 95% "
    "confidence interval of the mean.",
    "Slowest 1%": "The 99th percentile: 1% of the steps take longer.",
    "Steps": "A step is one parameter update. Steady steps come after the warm-up and contain no evaluation, no "
    "saving and no epoch start; all times are from these steps.",
    "GPU utilization": "Share of the time in which at least one kernel ran on the GPU. A kernel on a single "
    "multiprocessor (SM) already counts, so the GPU may be much less busy than this.",
    "GPU-hours": "The duration of the run times the number of GPUs: what you pay for.",
    "Step after the plan": "The expected step time after all changes of the plan, except those listed for "
    "information. Below it: the 10th and the 90th percentile.",
    "Kind": "What a kernel or operator computes: matmuls, convolutions, attention, or memory-bound elementwise work.",
    "Calls": "Launches per step.",
    "Tensor cores": "Units of the GPU for matmuls in 16 bits or less; several times as fast as FP32.",
}
