"""Stocks by the daily changes of their opening prices, window by window, with their sectors."""

import csv
import dataclasses
import datetime
import itertools
from pathlib import Path

import numpy as np

from affect_xp.checks import check_int
from affect_xp.datasets._npz import existing_file, read_npz
from affect_xp.exceptions import InputError

ARRAYS = ("opens", "dates", "tickers", "sector")
MISSING = {"", "nan", "na", "n/a", "null"}
TICKER_COLUMNS = ("ticker", "symbol")


@dataclasses.dataclass(frozen=True, eq=False)
class StockStep:
    """Stocks in one window of days.

    Attributes
    ----------
    X : (n, p) array
        The changes of the opening price from day to day, less their mean, over their standard deviation.
        A price that does not change in the window gives zeros: that stock is like no other then.
    ids : list of n str
        The tickers, the same at all steps.
    labels : (n,) int array
        The sector of each stock, a position in `sectors`.
    sectors : list of k str
        The names of the sectors, in the order of the alphabet.
    start, end : date
        The first and the last day whose price counts.
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


@dataclasses.dataclass(frozen=True, eq=False)
class Prices:
    """Opening prices by day and stock, NaN where it was not traded."""

    prices: np.ndarray  # (days, n)
    dates: list[str]
    tickers: list[str]
    sectors: list[str]  # (n,), by stock


def load_nasdaq(path: str | Path, sectors: str | Path | None = None, *, window: int = 15) -> list[StockStep]:
    """Read opening prices and cut their daily changes into windows that do not overlap.

    Only stocks that were traded on every day are kept. Days at the end that fill no window are left out.

    Parameters
    ----------
    path : str or Path
        An .npz file with `opens` (days, stocks; NaN where not traded), `dates` (as 2008-12-31), `tickers` and
        `sector` (a name for each stock); or a .csv file of prices, its first row `date` and the tickers, then
        a row for each day, in the order of time.
    sectors : str or Path
        With a .csv file of prices, a second one whose first row names the columns `ticker` (or `symbol`) and
        `sector`, among others, with a row for each stock.
    window : int
        Changes in a window.

    Returns
    -------
    list of StockStep
        For the 253 days of 2008, 16 windows of 15 changes.

    Examples
    --------
    >>> import affect_xp as ax
    >>> steps = ax.datasets.load_nasdaq("nasdaq2008.npz")  # doctest: +SKIP
    >>> steps = ax.datasets.load_nasdaq("prices.csv", "sectors.csv")  # doctest: +SKIP
    >>> model = ax.Affect(ax.KMeans(12), proximity="dot").fit(s.X for s in steps)  # doctest: +SKIP
    """
    check_int("window", window, 2)
    path = existing_file(path)
    suffix = path.suffix.lower()
    if suffix == ".npz":
        if sectors is not None:
            raise InputError(
                f"sectors is for prices in .csv, but path is {path}, which has its own; leave it out"
            )
        return _windows(path, _from_npz(path), window)
    if suffix != ".csv":
        raise InputError(f"path must end in .npz or .csv, got {path}; rename the file to what it is")
    if sectors is None:
        raise InputError(f"sectors must name a .csv file with the sector of each stock of {path}")
    return _windows(path, _from_csv(path, existing_file(sectors)), window)


def _windows(path: Path, given: Prices, window: int) -> list[StockStep]:
    """Return the steps of checked prices."""
    days = _checked_dates(path, given.dates)
    complete = np.flatnonzero(~np.isnan(given.prices).any(axis=0))
    n_windows = (len(days) - 1) // window
    if n_windows < 1:
        raise InputError(
            f"{path} has {len(days)} days, but one window of {window} changes needs {window + 1}; "
            "give more days or a smaller window"
        )
    if not len(complete):
        raise InputError(f"{path} has no stock with a price on every day; give fewer days or fill the gaps")
    ids = [given.tickers[i] for i in complete]
    names = sorted({given.sectors[i] for i in complete})
    labels = np.array([names.index(given.sectors[i]) for i in complete])
    changes = np.diff(given.prices[:, complete], axis=0)  # (days - 1, n)
    return [
        StockStep(
            standardised(changes[start : start + window].T),
            ids,
            labels,
            names,
            days[start],
            days[start + window],
        )
        for start in range(0, n_windows * window, window)
    ]


def standardised(changes: np.ndarray) -> np.ndarray:
    """Return rows with mean 0 and standard deviation 1, (n, p); zeros for those that are constant."""
    # A constant row leaves rounding in its mean: its range says that it is one.
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
        raise InputError(f"{path}: the dates are not in the order of time; sort the rows, one for each day")
    return days


def _checked_prices(path: Path, prices: Prices) -> Prices:
    """Return prices that are finite or missing, for distinct tickers."""
    if np.isinf(prices.prices).any():
        raise InputError(f"{path}: a price is infinite; leave the cell empty where a stock was not traded")
    if len(set(prices.tickers)) != len(prices.tickers):
        twice = next(t for t in prices.tickers if prices.tickers.count(t) > 1)
        raise InputError(f"{path}: ticker {twice} stands there twice; give each stock one column")
    return prices


def _from_npz(path: Path) -> Prices:
    data = read_npz(path, ARRAYS)
    opens = data["opens"]
    texts = [data[name] for name in ARRAYS[1:]]
    fits = opens.ndim == 2 and [t.shape for t in texts] == [opens.shape[:1], opens.shape[1:], opens.shape[1:]]
    if not fits or opens.dtype.kind not in "fiu" or any(t.dtype.kind != "U" for t in texts):
        raise InputError(
            f"{path}: opens of shape {opens.shape} and dtype {opens.dtype} needs a date for each row, and a "
            "ticker and a sector for each column; the file is damaged: fetch it again"
        )
    dates, tickers, sectors = ([str(value) for value in values] for values in texts)
    # In float32 differences of prices would lose digits.
    return _checked_prices(path, Prices(opens.astype(np.float64), dates, tickers, sectors))


def _from_csv(path: Path, sectors: Path) -> Prices:
    header, *rows = _read_csv(path)
    tickers, of_ticker = header[1:], _sector_table(sectors)
    unknown = [ticker for ticker in tickers if ticker not in of_ticker]
    if unknown:
        listed = ", ".join(unknown[:5]) + (", ..." if len(unknown) > 5 else "")
        raise InputError(
            f"{sectors} lacks the sector of {len(unknown)} stocks of {path} ({listed}); add them to the one, "
            "or take them out of the other"
        )
    prices = np.array([[_price(path, header, row, j) for j in range(1, len(header))] for row in rows])
    values = prices.reshape(len(rows), len(tickers))
    dates = [row[0] for row in rows]
    return _checked_prices(path, Prices(values, dates, tickers, [of_ticker[t] for t in tickers]))


def _price(path: Path, header: list[str], row: list[str], column: int) -> float:
    """Return the price in a cell, NaN for one that is empty."""
    text = row[column]
    if text.lower() in MISSING:
        return np.nan
    try:
        return float(text)
    except ValueError:
        raise InputError(
            f"{path}: the price of {header[column]} on {row[0]} is {text!r}; give a number, or leave it empty"
        ) from None


def _sector_table(path: Path) -> dict[str, str]:
    """Return the sector of each ticker."""
    header, *rows = _read_csv(path)
    names = [name.lower() for name in header]
    ticker = next((names.index(name) for name in TICKER_COLUMNS if name in names), None)
    if ticker is None or "sector" not in names:
        raise InputError(
            f"{path} must have the columns ticker (or symbol) and sector, got {', '.join(header)}; name them "
            "in its first row"
        )
    return {row[ticker]: row[names.index("sector")] for row in rows}


def _read_csv(path: Path) -> list[list[str]]:
    """Return the rows of a table, all as long as the first, without empty lines."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [[cell.strip() for cell in row] for row in csv.reader(file, strict=True) if row]
    except (csv.Error, OSError, UnicodeError) as error:
        raise InputError(f"{path} cannot be read as a .csv file ({error}); save it as UTF-8 text") from error
    if not rows:
        raise InputError(f"{path} is empty; give a first row with the names of the columns")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(rows[0]):
            raise InputError(
                f"{path}, row {number}: {len(row)} cells, but the first row has {len(rows[0])}; give each "
                "row as many"
            )
    return rows
