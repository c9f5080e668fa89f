"""How Sphinx builds the site: `nox -s docs`."""

import re
import warnings
from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx_gallery.sorting import FileNameSortKey

import affect_xp

project = "affect_xp"
author = "The affect_xp developers"
project_copyright = author
version = release = affect_xp.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "gallery/*.md5", "gallery/*.ipynb", "gallery/*.py", "paper/README.md"]
nitpicky = True
# Names in backticks in docstrings become links where possible; some are names of parameters.
nitpick_ignore_regex = [("py:(obj|exc)", ".*")]
suppress_warnings = [
    "myst.header",  # the reports that commands write go from # to ###
    "config.cache",  # sphinx-gallery keeps a class in its configuration
]

# Pages
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
myst_dmath_double_inline = True
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# Reference
default_role = "py:obj"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autosummary_generate = False
add_module_names = False
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False

# Gallery
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"plot_",
    "ignore_pattern": r"extending",
    "within_subsection_order": FileNameSortKey,
    "copyfile_regex": "",
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 1e9,
    "write_computation_times": False,
    "abort_on_example_error": True,
    "matplotlib_animations": False,
}
warnings.filterwarnings("ignore", message="FigureCanvasAgg is non-interactive")

# Look
html_theme = "furo"
html_title = "affect_xp"
html_static_path = ["_static"]
html_extra_path = ["llms.txt"]  # a map of the site in plain text
html_css_files = ["affect.css"]
html_show_sphinx = False
html_copy_source = False
html_show_copyright = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "friendly"
pygments_dark_style = "monokai"
html_math_renderer = "mathml"

SECTION = re.compile(r"^-{3,}$")
NAMES = re.compile(r"^(\s*:(?:param|type|ivar|vartype) )(\w+(?:, \w+)+):")
TYPE = re.compile(r"^(\s*:(?:type|vartype) [^:]+:) ([^`*]+)$")


def formulas_as_written(app, what, name, obj, options, lines):
    """Set formulas apart: an indented paragraph before the first section of a docstring is shown as it is."""
    end = next((i - 1 for i, line in enumerate(lines) if SECTION.match(line)), len(lines))
    starts = [
        i
        for i in range(1, end)
        if lines[i].startswith("    ") and not lines[i - 1].strip() and not _goes_on(lines, i)
    ]
    for i in reversed(starts):
        lines[i:i] = ["::", ""]


def _goes_on(lines, i):
    """Tell whether the paragraph before is indented too: then it is one block with this one."""
    before = next((line for line in reversed(lines[:i]) if line.strip()), "")
    return before.startswith("    ")


def types_as_prose(app, what, name, obj, options, lines):
    """Emphasise types, such as "(n, n) array or Proximity", so that single letters do not become links.

    Keep names with a common description together, so that the first of "W, past" is not taken for a type.
    """
    together = [NAMES.sub(lambda names: f"{names[1]}{names[2].replace(', ', ',')}:", line) for line in lines]
    lines[:] = [TYPE.sub(r"\1 *\2*", line) for line in together]


def without_last_blank_line(app, name, source):
    """Remove the blank line that ends the examples of a page, which doctest needs and readers do not."""
    source[0] = re.sub(r"\n\n```$", "\n```", source[0], flags=re.MULTILINE)


def inline_formula(self, node):
    """Write a formula as MathML, which browsers show without anything from the network."""
    self.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def displayed_formula(self, node):
    """Write a formula on a line of its own."""
    self.body.append(f'<div class="formula">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def write_example_report(app, error):
    """Write the report that the pages show."""
    if error is None and app.builder.format == "html":
        bikes = affect_xp.datasets.bike_stations()
        model = affect_xp.Affect(affect_xp.KMeans(3), proximity="dot", random_state=0)
        model.fit(bikes.X, ids=bikes.ids, times=bikes.weeks)
        affect_xp.write_report(
            model,
            Path(app.outdir, "_static", "report.html"),
            title="Bike stations",
            steps=bikes.X,
            feature_names=bikes.hours,
        )


def setup(app):
    """Connect the functions above."""
    app.connect("source-read", without_last_blank_line)
    app.connect("build-finished", write_example_report)
    app.connect("autodoc-process-docstring", formulas_as_written, priority=400)  # before napoleon
    app.connect("autodoc-process-docstring", types_as_prose, priority=600)  # after it
    app.add_html_math_renderer("mathml", (inline_formula, None), (displayed_formula, None))
