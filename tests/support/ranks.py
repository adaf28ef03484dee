"""Start a program on several ranks, with the variables that torchrun sets: `python ranks.py 2 train.py ...`.

torchrun imports torch to do the same. This script is for tests about ranks, not about launchers.
"""

import os
import socket
import subprocess
import sys

number = int(sys.argv[1])
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
about = {"WORLD_SIZE": number, "LOCAL_WORLD_SIZE": number, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
started = []
for rank in range(number):
    variables = {**about, "RANK": rank, "LOCAL_RANK": rank, "GROUP_RANK": 0, "OMP_NUM_THREADS": 1}
    environment = {**os.environ, **{name: str(value) for name, value in variables.items()}}
    started.append(subprocess.Popen([sys.executable, *sys.argv[2:]], env=environment))
sys.exit(max(abs(process.wait()) for process in started))
