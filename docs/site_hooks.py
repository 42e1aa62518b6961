"""What the site does beside its pages: the README is its first one, and nothing is loaded from elsewhere."""

import re
from pathlib import Path

from mkdocs.structure.files import File, Files

README = Path(__file__).parent.parent / "README.md"
# nbconvert gives every notebook a module that would fetch Mermaid for diagrams; ours have none.
DIAGRAMS = re.compile(r'<script type="module">(?:(?!</script>).)*mermaid.*?</script>', re.DOTALL)


def on_files(files: Files, config) -> Files:
    """Add the README as index.md; a link to docs/page.md there is a link to page.md here."""
    text = README.read_text("utf-8").replace("](docs/", "](")
    files.append(File.generated(config, "index.md", content=text))
    return files


def on_page_content(html: str, **_) -> str:
    """Pages of notebooks without the script that would be loaded."""
    return DIAGRAMS.sub("", html)
