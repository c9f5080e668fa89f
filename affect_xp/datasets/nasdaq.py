"""Daily changes of opening prices of stocks by window, with the sectors of the stocks."""

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


@dataclasses.dataclass(frozen=True, eq=False)
class Prices:
    """Opening prices by day and stock, NaN if it was not traded."""

    prices: np.ndarray  # (days, n)
    dates: list[str]
    tickers: list[str]
    sectors: list[str]  # (n,), by stock


def load_nasdaq(path: str | Path, sectors: str | Path | None = None, *, window: int = 15) -> list[StockStep]:
    """Read opening prices and split their daily changes into non-overlapping windows.

    Only stocks that were traded on every day are kept. Days at the end that do not fill a window are dropped.

    Parameters
    ----------
    path : str or Path
        An .npz file with `opens` (days, stocks; NaN if not traded), `dates` (as 2008-12-31), `tickers` and
        `sector` (one name per stock); or a .csv file of prices, with `date` and the tickers in its first row,
        and one row per day, sorted by time.
    sectors : str or Path
        With a .csv file of prices, a second .csv file with columns `ticker` (or `symbol`) and `sector`, and
        one row per stock.
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
    >>> steps = ax.datasets.load_nasdaq("prices.csv", "sectors.csv")  # doctest: +SKIP
    >>> model = ax.Affect(ax.KMeans(12), proximity="dot").fit(s.X for s in steps)  # doctest: +SKIP
    """
    check_int("window", window, 2)
    path = existing_file(path)
    suffix = path.suffix.lower()
    if suffix == ".npz":
        if sectors is not None:
            raise InputError(
                f"sectors is for prices in .csv, but {path} contains its own sectors; omit sectors"
            )
        return _windows(path, _from_npz(path), window)
    if suffix != ".csv":
        raise InputError(f"path must end in .npz or .csv, got {path}; rename the file")
    if sectors is None:
        raise InputError(f"sectors must be a .csv file with the sector of each stock of {path}")
    return _windows(path, _from_csv(path, existing_file(sectors)), window)


def _windows(path: Path, given: Prices, window: int) -> list[StockStep]:
    """Return the steps of checked prices."""
    days = _checked_dates(path, given.dates)
    complete = np.flatnonzero(~np.isnan(given.prices).any(axis=0))
    n_windows = (len(days) - 1) // window
    if n_windows < 1:
        raise InputError(
            f"{path} has {len(days)} days, but one window of {window} changes needs {window + 1}; "
            "use more days or a smaller window"
        )
    if not len(complete):
        raise InputError(f"{path} has no stock with a price on every day; use fewer days or fill the gaps")
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


def _checked_prices(path: Path, prices: Prices) -> Prices:
    """Return the prices; raise if one is infinite or a ticker is duplicated."""
    if np.isinf(prices.prices).any():
        raise InputError(f"{path}: a price is infinite; leave the cell empty if a stock was not traded")
    if len(set(prices.tickers)) != len(prices.tickers):
        twice = next(t for t in prices.tickers if prices.tickers.count(t) > 1)
        raise InputError(f"{path}: ticker {twice} appears twice; use one column per stock")
    return prices


def _from_npz(path: Path) -> Prices:
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
    # In float32 differences of prices would lose digits.
    return _checked_prices(path, Prices(opens.astype(np.float64), dates, tickers, sectors))


def _from_csv(path: Path, sectors: Path) -> Prices:
    header, *rows = _read_csv(path)
    tickers, of_ticker = header[1:], _sector_table(sectors)
    unknown = [ticker for ticker in tickers if ticker not in of_ticker]
    if unknown:
        listed = ", ".join(unknown[:5]) + (", ..." if len(unknown) > 5 else "")
        raise InputError(
            f"{sectors} lacks the sector of {len(unknown)} stocks of {path} ({listed}); add their sectors, "
            "or remove the stocks"
        )
    prices = np.array([[_price(path, header, row, j) for j in range(1, len(header))] for row in rows])
    values = prices.reshape(len(rows), len(tickers))
    dates = [row[0] for row in rows]
    return _checked_prices(path, Prices(values, dates, tickers, [of_ticker[t] for t in tickers]))


def _price(path: Path, header: list[str], row: list[str], column: int) -> float:
    """Return the price in a cell, NaN if it is empty."""
    text = row[column]
    if text.lower() in MISSING:
        return np.nan
    try:
        return float(text)
    except ValueError:
        raise InputError(
            f"{path}: the price of {header[column]} on {row[0]} is {text!r}; use a number, or leave it empty"
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
    """Return the nonempty rows of a table, all of the same length."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [[cell.strip() for cell in row] for row in csv.reader(file, strict=True) if row]
    except (csv.Error, OSError, UnicodeError) as error:
        raise InputError(f"{path} cannot be read as a .csv file ({error}); save it as UTF-8 text") from error
    if not rows:
        raise InputError(f"{path} is empty; add a first row with the names of the columns")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(rows[0]):
            raise InputError(
                f"{path}, row {number}: {len(row)} cells, but the first row has {len(rows[0])}; use the same "
                "number in each row"
            )
    return rows
