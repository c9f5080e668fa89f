"""Daily changes of opening prices of stocks by window, with the sectors of the stocks."""

import dataclasses
import datetime
import itertools
from pathlib import Path

import numpy as np

from affect_xp.checks import check_int
from affect_xp.datasets._npz import existing_file, read_npz
from affect_xp.exceptions import InputError

ARRAYS = ("opens", "dates", "tickers", "sector")


@dataclasses.dataclass(frozen=True, eq=False)
class StockStep:
    """Stocks in one window of days.

    Attributes
    ----------
    X : (n, p) array
        The standardised daily changes of the opening price. A price that does not change in the window gives
        zeros, and the stock is then similar to no other.
    ids : list of n str
        The tickers, the same at all steps.
    labels : (n,) int array
        The sector of each stock, an index into `sectors`.
    sectors : list of k str
        The names of the sectors, in alphabetical order.
    start, end : date
        The first and the last day of the prices.
    """

    X: np.ndarray
    ids: list[str]
    labels: np.ndarray
    sectors: list[str]
    start: datetime.date
    end: datetime.date

    @property
    def W(self) -> np.ndarray:
        """The dot products of the features, (n, n)."""
        return self.X @ self.X.T


def load_nasdaq(path: str | Path, *, window: int = 15) -> list[StockStep]:
    """Read opening prices and split their daily changes into non-overlapping windows.

    Only stocks that were traded on every day are kept. Days at the end that do not fill a window are dropped.
    For prices in a table use `affect_xp.io.read_steps(..., changes="absolute", standardize=True)`.

    Parameters
    ----------
    path : str or Path
        An .npz file with `opens` (days, stocks; NaN if not traded), `dates` (as 2008-12-31), `tickers` and
        `sector` (one name per stock).
    window : int
        The number of changes in a window.

    Returns
    -------
    list of StockStep
        For the 253 days of 2008, 16 windows of 15 changes.

    Examples
    --------
    >>> import affect_xp as ax
    >>> steps = ax.datasets.load_nasdaq("nasdaq2008.npz")  # doctest: +SKIP
    >>> model = ax.Affect(ax.KMeans(12), proximity="dot").fit(s.X for s in steps)  # doctest: +SKIP
    """
    check_int("window", window, 2)
    path = existing_file(path)
    opens, dates, tickers, sectors = _from_npz(path)
    days = _checked_dates(path, dates)
    complete = np.flatnonzero(~np.isnan(opens).any(axis=0))
    n_windows = (len(days) - 1) // window
    if n_windows < 1:
        raise InputError(
            f"{path} has {len(days)} days, but one window of {window} changes needs {window + 1}; "
            "use more days or a smaller window"
        )
    if not len(complete):
        raise InputError(f"{path} has no stock with a price on every day; use fewer days or fill the gaps")
    ids = [tickers[i] for i in complete]
    names = sorted({sectors[i] for i in complete})
    labels = np.array([names.index(sectors[i]) for i in complete])
    changes = np.diff(opens[:, complete], axis=0)  # (days - 1, n)
    steps = []
    for start in range(0, n_windows * window, window):
        X = standardised(changes[start : start + window].T)
        steps.append(StockStep(X, ids, labels, names, days[start], days[start + window]))
    return steps


def standardised(changes: np.ndarray) -> np.ndarray:
    """Return rows with mean 0 and standard deviation 1, (n, p); zeros for constant rows."""
    # The mean of a constant row has rounding errors, so test its range.
    constant = np.ptp(changes, axis=1, keepdims=True) == 0  # (n, 1)
    centred = changes - changes.mean(axis=1, keepdims=True)
    spread = np.where(constant, 1.0, changes.std(axis=1, keepdims=True))
    return np.where(constant, 0.0, centred / spread)


def _checked_dates(path: Path, texts: list[str]) -> list[datetime.date]:
    try:
        days = [datetime.date.fromisoformat(text) for text in texts]
    except ValueError as error:
        raise InputError(f"{path}: {error}; write dates like 2008-12-31") from error
    if any(a >= b for a, b in itertools.pairwise(days)):
        raise InputError(f"{path}: the dates are not increasing; sort the rows, one per day")
    return days


def _from_npz(path: Path) -> tuple[np.ndarray, list[str], list[str], list[str]]:
    """Return opening prices (days, n), NaN if a stock was not traded, dates, tickers and sectors."""
    data = read_npz(path, ARRAYS)
    opens = data["opens"]
    texts = [data[name] for name in ARRAYS[1:]]
    fits = opens.ndim == 2 and [t.shape for t in texts] == [opens.shape[:1], opens.shape[1:], opens.shape[1:]]
    if not fits or opens.dtype.kind not in "fiu" or any(t.dtype.kind != "U" for t in texts):
        raise InputError(
            f"{path}: opens of shape {opens.shape} and dtype {opens.dtype} needs one date per row, and one "
            "ticker and sector per column; the file is damaged: fetch it again"
        )
    dates, tickers, sectors = ([str(value) for value in values] for values in texts)
    if np.isinf(opens).any():
        raise InputError(f"{path}: a price is infinite; use NaN if a stock was not traded")
    if len(set(tickers)) != len(tickers):
        twice = next(t for t in tickers if tickers.count(t) > 1)
        raise InputError(f"{path}: ticker {twice} appears twice; use one column per stock")
    # In float32 differences of prices would lose digits.
    return opens.astype(np.float64), dates, tickers, sectors
