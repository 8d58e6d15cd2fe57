"""Write the generated reference pages."""

from tools.reference import PAGES
from tools.repository import PROJECT

for path, page in PAGES.items():
    (PROJECT / "docs" / path).write_text(page())
