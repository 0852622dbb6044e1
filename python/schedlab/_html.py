"""Tables as notebooks show them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

Head = tuple[str, str]


def table(heads: Sequence[Head], rows: Iterable[Sequence[Any]], caption: str = "") -> str:
    """Return a table: a head is a name and what it means, a cell a value or (text, note). Numbers and notes are on the right."""
    head = "".join(f'<th title="{escape(doc)}">{escape(name)}</th>' for name, doc in heads)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    above = f'<caption style="text-align: left">{escape(caption)}</caption>' if caption else ""
    return f"<table>{above}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    if isinstance(value, tuple):
        text, note = value
        below = f'<br><small style="opacity: 0.7">{escape(note)}</small>' if note else ""
        return f'<td style="text-align: right">{escape(text)}{below}</td>'
    side = "left" if isinstance(value, (str, bool)) else "right"
    return f'<td style="text-align: {side}">{escape("" if value is None else str(value))}</td>'
