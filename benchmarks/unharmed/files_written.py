"""Write files with the names that a recording uses."""

import os

from ending import model, say, train

for name in ("result.json", "report.html", "report.md", "run.db"):
    with open(name, "w") as file:
        file.write("the program's own")
os.makedirs("windows", exist_ok=True)
with open("windows/mine.txt", "w") as file:
    file.write("the program's own")
network = model()
say(train(network), sorted(os.listdir(".")), network=network)
