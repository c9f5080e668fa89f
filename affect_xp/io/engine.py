"""A DuckDB connection for one input, and its errors in plain words."""

import re
import shutil
import tempfile
import threading
import uuid
import weakref
from pathlib import Path
from typing import Any

from affect_xp.exceptions import InputError

REASONS = {
    r"Expected Number of Columns: (\d+) Found: (\d+)": r"it has \2 values, but there are \1 columns",
    "[Uu]nquoted|unterminated": "a quotation mark is not closed, or text follows a closed one",
    'not support the encoding: "(.*)"': r"it is packed, and encoding='\1' is not read there; unpack it first",
    "state machine": "its lines end in several ways; unpack it, or save it with the same end of all lines",
    "[Uu]nicode|utf-8": "it is not UTF-8; pass its encoding, as in encoding='latin-1'",
    "[Mm]aximum line size": "it is too long; look for a quotation mark that is not closed",
    "Out of Memory": "it needs more memory; pass a larger memory_limit",
    r"format specifier (.*?):": r"time_format='\1' is not understood; use codes such as in '%d/%m/%Y'",
    r"cast \((.*) -> .*column (.*)": r"column '\2' contains \1; name those with numbers with features=[...]",
    "[Mm]emory (limit )?(must|.*(pars|unit))": "pass a number of bytes, or a text such as '2GB'",
}
# Cells that contain nothing, and the same in SQL. No list: IN may become a join, which changes the order of
# rows, and many lists take long to plan.
MISSING = r"(?i)\s*(na|#?n/a|nan|nat|<na>|null|none)?\s*"
IS_MISSING = f"({{t}} IS NULL OR regexp_full_match({{t}}::VARCHAR, '{MISSING}'))"


class Engine:
    """An in-memory database. Data that does not fit goes to a temporary folder, deleted with the engine."""

    def __init__(self, memory_limit: str | int | None = None) -> None:
        try:
            import duckdb
        except ImportError as error:
            raise InputError("tables are read by DuckDB; install it: pip install 'affect-xp[io]'") from error
        self.folder = Path(tempfile.mkdtemp(prefix="affect_xp-"))
        # It needs no extension, and must not look for one on the network.
        config = {"temp_directory": str(self.folder), "autoinstall_known_extensions": "false"}
        self.connection = duckdb.connect(":memory:", config=config)
        self.buffer_size = 2**23 if memory_limit is None else 2**21  # of text files, for each thread
        self._error, self._lock = duckdb.Error, threading.Lock()
        weakref.finalize(self, _close, self.connection, self.folder)
        self.run("SET enable_progress_bar = false")  # which goes to the standard output
        if memory_limit is not None:
            limit = f"{memory_limit} B" if isinstance(memory_limit, int) else memory_limit
            self.run(f"SET memory_limit = {literal(limit)}", f"memory_limit={memory_limit!r}")
            self.run("SET threads = 1")  # each thread has buffers of its own

    def new_file(self) -> Path:
        """Return the path of a file that does not exist yet, deleted with the engine."""
        return self.folder / f"{uuid.uuid4().hex}.csv"

    def run(
        self, sql: str, title: object = "the table", *, given: Any = None, fetch: str = "fetchall"
    ) -> Any:
        """Return the result of a statement; errors name the input by its title, and its line if known."""
        try:
            with self._lock:
                return getattr(self.connection.execute(sql, given), fetch)()
        except self._error as error:
            line = re.search(r"on Line[: ]+(\d+)", str(error))
            where = f"line {line[1]} of {title}" if line else title
            raise InputError(f"{where} cannot be read: {reason(str(error))}") from error


def reason(text: str) -> str:
    """Return what a message of DuckDB says, in plain words if they are known."""
    known = (found.expand(say) for key, say in REASONS.items() if (found := re.search(key, text)))
    return next(known, text.splitlines()[0])


def _close(connection: Any, folder: Path) -> None:
    connection.close()
    shutil.rmtree(folder, ignore_errors=True)


def quoted(name: str) -> str:
    """Return a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: object) -> str:
    """Return a text as an SQL literal."""
    return "'" + str(text).replace("'", "''") + "'"
