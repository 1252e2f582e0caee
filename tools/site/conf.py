"""Sphinx: the documentation site. tools/docs.sh fills the folder that this is used on."""

project = "gpufleet.nvidia"
author = copyright = "The gpufleet.nvidia authors"
extensions = ["myst_parser", "sphinx_antsibull_ext"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
html_theme = "furo"
html_title = "gpufleet.nvidia"
html_show_sphinx = False
# Headings of any depth can be linked to, as on GitHub.
myst_heading_anchors = 4
# Pages of the collection's own documentation are reached by their index, and refer to ansible-core's documentation, which is not built here.
nitpicky = False
suppress_warnings = ["ref.ref", "toc.not_included", "misc.highlighting_failure", "myst.header"]
highlight_language = "none"
