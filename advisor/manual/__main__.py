"""Write each generated document into this checkout."""

from pathlib import Path

from advisor.manual.documents import documents

if __name__ == "__main__":
    root = Path(__file__).resolve().parents[2]
    for path, text in documents(root).items():
        (root / path).write_text(text, encoding="utf-8")
