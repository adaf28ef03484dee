"""What Slurm 22.05.8 sets, as `env` showed it in jobs of two nodes with two tasks each: what bears on ranks."""

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
"""The script of `sbatch`, of which there is one, on the first node."""

STEP = BATCH | {
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "4",
}
"""The last task of `srun` in it."""

ONE = BATCH | {
    "SLURM_NNODES": "1",
    "SLURM_NTASKS": "1",
    "SLURM_STEP_ID": "1",
    "SLURM_STEP_NUM_NODES": "1",
    "SLURM_STEP_NUM_TASKS": "1",
}
"""The task of `srun -n1` in it."""

REQUEUED = STEP | {"SLURM_RESTART_COUNT": "1"}
"""The same task, after `scontrol requeue`. In the first start there is no such variable."""

PMI2 = STEP | {"PMI_RANK": "3", "PMI_SIZE": "4", "PMI_JOBID": "33.0"}
"""The same task of `srun --mpi=pmi2`."""

DAEMON = BATCH | {
    "SLURM_PROCID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "2",
}
"""The daemon by which an mpirun in it starts its ranks on the second node."""

OPEN_MPI = DAEMON | {
    "SLURM_NTASKS": "2",
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "PMIX_NAMESPACE": "502923265",
    "PMIX_RANK": "3",
}
"""The last rank of `mpirun` in it, of Open MPI 4.1.4."""

HYDRA = DAEMON | {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1"}
"""The last rank of `mpiexec` in it, of MPICH 4.0.2."""

HYDRA_HERE = BATCH | {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1"}
"""The last rank of `mpiexec -launcher fork -n 2` in it: no daemon is started by srun."""
