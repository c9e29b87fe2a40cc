# SPDX-License-Identifier: Apache-2.0
"""Tables of an SQLite file that nsys exported, by names that hold for several versions of it.

nsys leaves out empty tables, sometimes renames columns, and appends _V2 to a table with changed columns.
"""

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from nurec_lite.profiling.errors import ProfileError

Rows = list[dict[str, Any]]


class Export:
    """Reads everything on demand; ProfileError names a missing part."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.columns = self._tables()
        if "StringIds" not in self.columns and not self.columns.keys() & {"META_DATA_EXPORT", "TARGET_INFO_SYSTEM_ENV"}:
            raise ProfileError(f"{path} is no export of nsys: {self._names()}; make it by nsys export --type sqlite")

    def _query(self, sql: str) -> list[tuple[Any, ...]]:
        if not self.path.is_file():
            raise ProfileError(f"{self.path} does not exist; nsys export --type sqlite writes it")
        try:
            with closing(sqlite3.connect(f"{self.path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
                return connection.execute(sql).fetchall()
        except sqlite3.Error as error:
            raise ProfileError(f"{self.path} cannot be read as SQLite ({error}); take the profile again") from error

    def _tables(self) -> dict[str, set[str]]:
        names = [name for (name,) in self._query("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")]
        return {name: {row[1] for row in self._query(f'PRAGMA table_info("{name}")')} for name in names}

    def _names(self) -> str:
        names = [name for name in sorted(self.columns) if not name.startswith("ENUM_")]
        return f"its tables are {', '.join(names)}" if names else "it has no tables"

    def table(self, name: str) -> str | None:
        """The newest version of a table; None if nothing was recorded for it."""
        versions = [t for t in self.columns if re.fullmatch(rf"{name}(_V\d+)?", t)]
        return max(versions, key=lambda t: int(t.rpartition("_V")[2]) if t != name else 1, default=None)

    def need(self, name: str) -> str:
        found = self.table(name)
        if found is None:
            raise ProfileError(
                f"{self.path} has no table {name} ({self._names()}, its schema is {self.schema()}); "
                "use a version of nsys that this package reads, or tool=torch"
            )
        return found

    def schema(self) -> str:
        """The version of the tables' layout."""
        rows = self.rows("META_DATA_EXPORT", "name", "value") if self.table("META_DATA_EXPORT") else []
        return next((str(row["value"]) for row in rows if row["name"] == "EXPORT_SCHEMA_VERSION"), "of unknown version")

    def rows(
        self,
        name: str,
        *columns: str,  # name, or names that it had in other versions separated by |; with ? at the end: None if missing
    ) -> Rows:  # by the first name of each column
        """All rows of a table; none if the table is left out."""
        table = self.table(name)
        if table is None:
            return []
        found = {c.rstrip("?").split("|")[0]: self._column(table, c) for c in columns}
        chosen = ", ".join("NULL" if column is None else f'"{column}"' for column in found.values())
        return [dict(zip(found, row, strict=True)) for row in self._query(f'SELECT {chosen} FROM "{table}"')]

    def _column(self, table: str, column: str) -> str | None:
        present = [name for name in column.rstrip("?").split("|") if name in self.columns[table]]
        if not present and not column.endswith("?"):
            raise ProfileError(
                f"table {table} of {self.path} has no column {column.replace('|', ' or ')} (it has "
                f"{', '.join(sorted(self.columns[table]))}); use a version of nsys that this package reads, or tool=torch"
            )
        return present[0] if present else None

    def strings(self) -> dict[int, str]:
        """Names, as other tables refer to them."""
        return {row["id"]: row["value"] for row in self.rows("StringIds", "id", "value")}
