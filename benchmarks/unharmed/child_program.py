"""Start another Python that trains."""

import os
import subprocess
import sys

from ending import model, say, train

if len(sys.argv) > 1:
    say(train(model()))
else:
    done = subprocess.run([sys.executable, __file__, "child"], capture_output=True, text=True)
    print(done.stdout, done.stderr, done.returncode, sorted(name for name in os.environ if "PROFILE" not in name) != [])
    say(train(model()))
