"""Write the generated reference pages."""

from lakehouse.config.model import PROJECT
from tools.reference import PAGES

for path, page in PAGES.items():
    (PROJECT / "docs" / path).write_text(page())
