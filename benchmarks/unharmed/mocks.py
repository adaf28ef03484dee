"""Train while names of the standard library are mocked, and assert what was called."""

import time
from unittest import mock

from ending import data, model, say, train

network, batch = model(), data()
with mock.patch("builtins.open", mock.mock_open(read_data="rate: 1")) as opened, mock.patch("os.open") as raw:
    begin = time.time()
    while time.time() < begin + 2:
        train(network, batch=batch)
    with open("settings.yaml") as file:
        read = file.read()
    opened.assert_called_once_with("settings.yaml")
    raw.assert_not_called()
say(read)
