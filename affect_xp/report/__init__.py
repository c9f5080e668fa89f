"""A run as one self-contained HTML page."""

import base64
import hashlib
import html
import json
import os
from importlib import resources
from pathlib import Path
from typing import Any

from affect_xp.files import replacing
from affect_xp.report._data import report_data
from affect_xp.tracking.history import History

__all__ = ["write_report"]


def write_report(
    source: Any, path: str | os.PathLike[str], *, title: str = "Clusters over time", max_objects: int = 2000
) -> Path:
    """Write an HTML page with α and its change points, the flow of clusters, their sizes, members and events.

    The page is one self-contained file for any browser, including phones; it loads nothing from the network.
    For long or large runs it contains only a part of the members and of the thin ribbons, with a note. It
    also notes if the run is too short to find change points.

    Parameters
    ----------
    source : Affect, another fitted model, or History
    path : path
        The name of the file; an existing file is replaced once the page is complete.
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
    >>> steps = ax.datasets.colliding_gaussians(rng=0)
    >>> model = ax.Affect(ax.KMeans(2), random_state=0).fit(step.W for step in steps)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_report(model, pathlib.Path(folder, "report.html"))
    ...     path.read_text(encoding="utf-8")[:15]
    '<!doctype html>'
    """
    history = source if isinstance(source, History) else source.history_
    model = "" if isinstance(source, History) else repr(source)
    page = _page(report_data(history, max_objects=max_objects), title, model)
    with replacing(path) as file:
        file.write(page.encode("utf-8"))
    return Path(path)


def _page(data: dict[str, Any], title: str, model: str) -> str:
    """Return the page, with a policy that allows only its own script and style."""
    parts = resources.files("affect_xp.report")
    style, script = (parts.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    policy = f"default-src 'none'; style-src {_fingerprint(style)}; script-src {_fingerprint(script)}"
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
            f"<header><h1>{html.escape(title)}</h1><p class='model'>{html.escape(model)}</p></header>",
            parts.joinpath("page.html").read_text(encoding="utf-8"),
            f'<script type="application/json" id="data">{_embedded(data)}</script>',
            f"<script>{script}</script>",
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
