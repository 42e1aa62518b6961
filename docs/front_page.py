"""The site's first page is the README, with its links as seen from the docs folder."""

from pathlib import Path

from mkdocs.structure.files import File, Files

README = Path(__file__).parent.parent / "README.md"


def on_files(files: Files, config) -> Files:
    """Add the README as index.md; a link to docs/page.md there is a link to page.md here."""
    text = README.read_text("utf-8").replace("](docs/", "](")
    files.append(File.generated(config, "index.md", content=text))
    return files
