"""Explain the report's less common words in a sentence or two; metrics explain themselves."""

from __future__ import annotations

GLOSSARY = {
    "Mean step": "The time from one update of the parameters to the next, averaged over the steady steps. Below it: "
    "the interval that holds the true mean with 95% probability.",
    "Slowest 1%": "The 99th percentile: one step in a hundred takes longer.",
    "Steps": "Updates of the parameters. Steady are those after the warm-up that hold no evaluation, no saving and no "
    "start of an epoch; times are taken from these.",
    "GPU utilization": "Share of time in which some kernel ran on the GPU. One kernel on one of its multiprocessors "
    "(SMs) suffices, so the GPU is no busier than this, and perhaps much less.",
    "GPU-hours": "The time of the run times the GPUs it used: what is paid for.",
    "Step after the plan": "The expected step time with every change of the plan made, information left aside. "
    "Below it: the 10th and the 90th percentile.",
    "Kind": "What a kernel or operator computes: products of matrices, convolutions, attention, or elementwise work "
    "that memory limits.",
    "Calls": "Launches in a step.",
    "Tensor cores": "Units of the GPU that multiply small matrices of 16 bits or less, several times as fast as FP32.",
}
