"""Put a model into a torch.package and read it back."""

import io

import torch
import torch.package
from ending import model, say, train

network = model()
losses = train(network)
buffer = io.BytesIO()
with torch.package.PackageExporter(buffer) as exporter:
    exporter.extern("**")
    exporter.save_pickle("models", "model.pkl", network)
buffer.seek(0)
loaded = torch.package.PackageImporter(buffer).load_pickle("models", "model.pkl")
say(losses, train(loaded), network=loaded)
