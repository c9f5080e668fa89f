"""Reading contacts, wide and tidy tables: CPU time and peak memory compared with DuckDB, polars and pandas.

Run with `python -m bench.reading`, or `python -m bench.reading --rows 3000000` without the largest file.
Each reader runs in its own process, readers alternate, and the minimum of several rounds counts. The row of
DuckDB is a plain group-by of the same file, which is less than `read_steps` does. The goal: 10 million
contacts in windows of 7 days in at most 1.5 times the time of DuckDB's group-by.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROUNDS = 3

# The code of each process, by kind of table.
READ = "import duckdb, affect_xp.io.steps as io; [step.values for step in io.read_steps(FILE, {})]"
CREATE = (
    """import duckdb; duckdb.connect().execute(f"CREATE TABLE found AS {} FROM read_csv('{{FILE}}') {}")"""
)
LAZY = "import polars as pl; table = pl.scan_csv(FILE, try_parse_dates=True)"
READERS = {
    "contacts": {
        "read_steps": READ.format("freq='7D'"),
        "read_steps, directed='sum'": READ.format("freq='7D', directed='sum'"),
        "duckdb": CREATE.format(
            "SELECT time_bucket(INTERVAL 7 DAY, time) AS week, source, target, count(*)", "GROUP BY ALL"
        ),
        "polars": f"{LAZY}; "
        "table.group_by(pl.col('time').dt.truncate('7d'), 'source', 'target').len().collect()",
        "pandas": "import pandas as pd; t = pd.read_csv(FILE, parse_dates=['time']); "
        "t.groupby([t['time'].dt.floor('7D'), 'source', 'target']).size()",
    },
    "wide": {
        "read_steps": READ.format("freq='15 rows'"),
        "duckdb": CREATE.format("SELECT *", ""),
        "polars": f"{LAZY}; table.collect().to_numpy()",
        "pandas": "import pandas as pd; pd.read_csv(FILE, index_col=0, parse_dates=True).to_numpy()",
    },
    "tidy": {
        "read_steps": READ.format("freq='15 rows', value='price'"),
        "duckdb": CREATE.format("SELECT date, symbol, avg(price)", "GROUP BY ALL"),
        "polars": f"{LAZY}; table.collect().pivot('symbol', index='date', values='price')",
        "pandas": "import pandas as pd; t = pd.read_csv(FILE, parse_dates=['date']); "
        "t.pivot(index='date', columns='symbol', values='price')",
    },
}
MEASURE = """
import json, resource, time
{imports}
begun, cpu = time.perf_counter(), time.process_time()
{code}
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
print("\\n" + json.dumps([time.process_time() - cpu, time.perf_counter() - begun, memory]))
"""


def write_contacts(path: Path, rows: int) -> None:
    """Write contacts of 20,000 people over two years, sorted by time, each pair in one direction."""
    import duckdb

    a, b = "hash(i) % 20000", "hash(i + 1000000007) % 20000"
    duckdb.sql(
        f"COPY (SELECT strftime(TIMESTAMP '2022-01-01' + INTERVAL (i * {2 * 365 * 86400} / {rows}) SECOND, "
        f"'%Y-%m-%dT%H:%M:%S') AS time, 'p' || least({a}, {b}) AS source, "
        f"'p' || greatest({a}, {b}) AS target "
        f"FROM range({rows}) AS r(i)) TO '{path}' (HEADER)"
    )


def write_prices(path: Path, days: int, stocks: int, *, tidy: bool) -> None:
    """Write stock prices: one column per stock, or one row per price."""
    prices = np.exp(np.cumsum(np.random.default_rng(0).normal(0, 0.01, (days, stocks)), axis=0)).round(4)
    dates = [str(day) for day in np.datetime64("2018-01-01") + np.arange(days)]
    names = [f"S{i:04}" for i in range(stocks)]
    with path.open("w", encoding="utf-8") as file:
        file.write("date,symbol,price\n" if tidy else f"date,{','.join(names)}\n")
        for day, row in zip(dates, prices.tolist(), strict=True):
            if tidy:
                file.writelines(f"{day},{name},{price}\n" for name, price in zip(names, row, strict=True))
            else:
                file.write(f"{day},{','.join(map(str, row))}\n")


def measured(kind: str, reader: str, file: Path) -> list[float]:
    """Return the CPU seconds, the wall seconds and the peak memory in MB of one run in a new process."""
    imports, _, code = READERS[kind][reader].partition("; ")
    code = f"FILE = {str(file)!r}\n" + MEASURE.replace("{imports}", imports).replace("{code}", code)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def report(title: str, kind: str, file: Path, rounds: int) -> None:
    """Print one row per reader."""
    runs: dict[str, list[list[float]]] = {reader: [] for reader in READERS[kind]}
    for _ in range(rounds):
        for reader, found in runs.items():
            found.append(measured(kind, reader, file))
    best = {reader: np.min(found, axis=0) for reader, found in runs.items()}
    for reader, (cpu, wall, memory) in best.items():
        ratios = " | ".join(f"{ratio:.2f}" for ratio in best[reader][:2] / best["duckdb"][:2])
        print(f"| {title} | {reader} | {cpu:.1f} | {wall:.1f} | {memory:.0f} | {ratios} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="*", default=[3_000_000, 10_000_000], help="of contacts")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", choices=list(READERS), help="one kind of table")
    parser.add_argument("--prices", type=int, nargs=2, default=[1500, 3000], help="days and stocks")
    options = parser.parse_args()
    days, stocks = options.prices
    print(f"| file | reader | CPU s | s | peak MB | CPU / DuckDB | s / DuckDB |\n|{'---|' * 7}")
    with tempfile.TemporaryDirectory() as folder:
        for rows in options.rows if options.only in (None, "contacts") else ():
            write_contacts(file := Path(folder) / "contacts.csv", rows)
            report(f"{rows / 1e6:g} M contacts", "contacts", file, options.rounds)
        for kind in ("wide", "tidy"):
            if options.only in (None, kind):
                write_prices(file := Path(folder) / f"{kind}.csv", days, stocks, tidy=kind == "tidy")
                report(f"{kind}, {days:,} × {stocks:,}", kind, file, options.rounds)


if __name__ == "__main__":
    main()
