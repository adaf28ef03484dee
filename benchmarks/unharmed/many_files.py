"""Open files up to a low limit."""

from ending import model, say, train

network = model()
losses = train(network)
files = []
try:
    while True:
        files.append(open(__file__))  # noqa: SIM115 - they must stay open
except OSError as error:
    print(len(files) + min(f.fileno() for f in files) > 20, error.errno)
for file in files:
    file.close()
say(losses, train(network), network=network)
