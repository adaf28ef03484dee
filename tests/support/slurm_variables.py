"""Variables about ranks that Slurm 22.05.8 sets, as shown by `env` in jobs of two nodes with two tasks each."""

BATCH = {
    "SLURM_JOB_ID": "33",
    "SLURM_JOB_NODELIST": "nodea,nodeb",
    "SLURM_NNODES": "2",
    "SLURM_NTASKS": "4",
    "SLURM_NTASKS_PER_NODE": "2",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "0",
}
"""The script of `sbatch`: one process, on the first node."""

STEP = BATCH | {
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "4",
}
"""The last task of `srun` in that script."""

ONE = BATCH | {
    "SLURM_NNODES": "1",
    "SLURM_NTASKS": "1",
    "SLURM_STEP_ID": "1",
    "SLURM_STEP_NUM_NODES": "1",
    "SLURM_STEP_NUM_TASKS": "1",
}
"""The task of `srun -n1` in that script."""

REQUEUED = STEP | {"SLURM_RESTART_COUNT": "1"}
"""The task of STEP after `scontrol requeue`. In the first start, SLURM_RESTART_COUNT is not set."""

PMI2 = STEP | {"PMI_RANK": "3", "PMI_SIZE": "4", "PMI_JOBID": "33.0"}
"""The task of STEP with `srun --mpi=pmi2`."""

DAEMON = BATCH | {
    "SLURM_PROCID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "2",
}
"""The daemon through which an mpirun in that script starts its ranks on the second node."""

OPEN_MPI = DAEMON | {
    "SLURM_NTASKS": "2",
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "PMIX_NAMESPACE": "502923265",
    "PMIX_RANK": "3",
}
"""The last rank of an `mpirun` of Open MPI 4.1.4 in that script."""

HYDRA = DAEMON | {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1"}
"""The last rank of an `mpiexec` of MPICH 4.0.2 in that script."""

HYDRA_HERE = BATCH | {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1"}
"""The last rank of `mpiexec -launcher fork -n 2` in that script: srun starts no daemon."""
