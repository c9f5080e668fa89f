"""A run as one self-contained HTML page."""

import base64
import dataclasses
import hashlib
import html
import json
import os
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from affect_xp import __version__
from affect_xp.display import LONGEST
from affect_xp.files import replacing
from affect_xp.models.smooth import Smoothed
from affect_xp.parameters import Parameters, defaults_of, parameters_of
from affect_xp.report._data import report_data
from affect_xp.report.steps import describe_steps
from affect_xp.tracking.history import History

__all__ = ["write_report"]

# The modules of the page, each after those it imports.
MODULES = (
    "run",
    "address",
    "layout",
    "elements",
    "charts",
    "flow",
    "step",
    "objects",
    "members",
    "events",
    "main",
)


def write_report(
    source: Any,
    path: str | os.PathLike[str],
    *,
    steps: Any = None,
    feature_names: Sequence[str] | None = None,
    title: str = "Clusters over time",
    max_objects: int = 2000,
) -> Path:
    """Write an HTML page that shows a run: α, the flow of clusters, who moved, members, and events.

    The page is one self-contained file for any browser, including phones; it loads nothing from the network.
    An address such as `report.html#step=6&cluster=3` opens it at a step and a cluster. For long or large runs
    it contains only a part of the members and of the thin ribbons, with a note. It also notes if the run is
    too short to find change points.

    Parameters
    ----------
    source : Affect, another fitted model, the result of `smooth`, or History
    path : path
        The name of the file; an existing file is replaced once the page is complete.
    steps : as for `fit`, optional
        The steps that were passed to `fit`, which a model does not keep. With them the page also shows what
        the clusters are: the features that set them apart, or their density and central members (see
        `cluster_profiles` and `cluster_densities`), and the silhouette or modularity of each step.
    feature_names : sequence of str, optional
        Names of the columns, if `steps` are features without names.
    title : str
    max_objects : int
        The maximum number of objects whose memberships are shown; they are evenly spaced. Sizes count all.

    Returns
    -------
    path : pathlib.Path

    Examples
    --------
    >>> import tempfile, pathlib, affect_xp as ax
    >>> from affect_xp.report import write_report
    >>> steps = [step.X for step in ax.datasets.colliding_gaussians(rng=0)]
    >>> model = ax.Affect(ax.KMeans(2), proximity="dot", random_state=0).fit(steps)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_report(model, pathlib.Path(folder, "report.html"), steps=steps)
    ...     path.read_text(encoding="utf-8")[:15]
    '<!doctype html>'
    """
    history = source if isinstance(source, History) else source.history_
    described = [] if steps is None else describe_steps(source, history, steps, feature_names)
    data = report_data(history, max_objects=max_objects, described=described)
    page = _page(data, title, "" if isinstance(source, History) else in_short(source))
    with replacing(path) as file:
        file.write(page.encode("utf-8"))
    return Path(path)


def in_short(value: Any) -> str:
    """Return an object as text, with the parameters that differ from their defaults.

    Examples
    --------
    >>> import affect_xp as ax
    >>> in_short(ax.Affect(ax.KMeans(3), n_iter=5))
    'Affect(clusterer=KMeans(n_clusters=3), n_iter=5)'
    """
    if isinstance(value, Smoothed):
        return f"smooth: {in_short(value.causal)}"
    if isinstance(value, type) or not (isinstance(value, Parameters) or dataclasses.is_dataclass(value)):
        text = repr(value)
        return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
    given, defaults = parameters_of(value, deep=False), defaults_of(type(value))
    changed = [
        f"{name}={in_short(given[name])}" for name in given if repr(given[name]) != repr(defaults[name])
    ]
    return f"{type(value).__name__}({', '.join(changed)})"


def script() -> str:
    """Return the modules of the page as one script.

    The modules are joined in the order of `MODULES`, which import only from earlier ones, without their
    imports, exports and comments about types; their names are distinct.
    """
    folder = resources.files("affect_xp.report").joinpath("js")
    parts = [folder.joinpath(f"{name}.mjs").read_text(encoding="utf-8") for name in MODULES]
    left_out = re.compile(
        r"^import [^;]*;\n|^// @ts-check\n|^export (?=\w)|[ \t]*/\*\*.*?\*/[ \t]*\n?",
        re.MULTILINE | re.DOTALL,
    )
    return "\n".join(['"use strict";', "(() => {", *(left_out.sub("", part) for part in parts), "})();"])


def _page(data: dict[str, Any], title: str, model: str) -> str:
    """Return the page, with a policy that allows only its own script and style."""
    parts = resources.files("affect_xp.report")
    style, code = parts.joinpath("page.css").read_text(encoding="utf-8"), script()
    policy = f"default-src 'none'; style-src {_fingerprint(style)}; script-src {_fingerprint(code)}"
    made_by = f"affect_xp {__version__}"
    rest = f" <span>· other parameters have their defaults · {made_by}</span>"
    about = f"{html.escape(model)}{rest}" if model else made_by
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{html.escape(title)}</title>",
            f"<style>{style}</style>",
            "</head>",
            "<body>",
            f'<header><h1>{html.escape(title)}</h1><p class="model">{about}</p></header>',
            parts.joinpath("page.html").read_text(encoding="utf-8"),
            f'<script type="application/json" id="data">{_embedded(data)}</script>',
            f"<script>{code}</script>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _embedded(data: dict[str, Any]) -> str:
    """Return JSON that is safe inside a page: without `<`, it cannot close or open an element."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _fingerprint(text: str) -> str:
    """Return the hash of a text for the content security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
