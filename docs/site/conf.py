"""The site: Sphinx over the repository's own Markdown, with references made from the code.

The source folder is the repository, so that links between pages, codecs' specifications and
examples are the same on the site as in a clone. `make docs` runs it strictly: warnings are errors.
"""

from pathlib import Path

import deltawire

ROOT = Path(__file__).resolve().parents[2]

project = "deltawire"
author = "the deltawire authors"
copyright = author
version = release = deltawire.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "breathe",
    "sphinx_copybutton",
]
root_doc = "docs/index"
include_patterns = [
    "README.md",
    "ARTIFACT.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs/*.md",
    "docs/**/*.md",
    "examples/README.md",
    "apps/linear/README.md",
    "src/codecs/**/spec.md",
    "src/patch/spec.md",
    "tests/traces/README.md",
]
exclude_patterns = ["build", "out", "dist", ".venv", ".git"]
suppress_warnings = [
    "myst.header",  # pages that begin below a heading of level 1
    "duplicate_declaration.cpp",  # the namespace, once for each header
    "ref.python",  # attributes of one name in several classes
]
default_role = "code"  # docstrings write `name`

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
highlight_language = "none"
copybutton_prompt_text = r"\$ "
copybutton_prompt_is_regexp = True

autodoc_member_order = "bysource"
# Of modules for programs that the site's environment doesn't have.
autodoc_mock_imports = ["flwr", "lightning", "pytorch_lightning"]
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # attributes that are described twice have one entry

breathe_projects = {"deltawire": str(ROOT / "build" / "docs" / "doxygen" / "xml")}
breathe_default_project = "deltawire"
breathe_domain_by_extension = {"h": "cpp", "hpp": "cpp"}

html_theme = "furo"
html_title = "deltawire"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
html_context: dict[str, object] = {}
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"

_DOOR = """<!doctype html>
<meta charset="utf-8">
<title>deltawire</title>
<meta http-equiv="refresh" content="0; url=docs/index.html">
<a href="docs/index.html">deltawire</a>
"""


def _write_door(app, failed) -> None:
    """The site's folder opens at the first page."""
    if failed is None:
        Path(app.outdir, "index.html").write_text(_DOOR)


def setup(app) -> None:
    """What Sphinx calls first."""
    app.connect("build-finished", _write_door)
