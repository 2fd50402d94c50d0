"""Times and keys, as a person reads them.  Pure."""

from __future__ import annotations

from datetime import UTC, datetime

from omidpy.model import FIRST_WORLD_TIMESTAMP


def moment(milliseconds: int) -> str:
    """Return wall time as text, in UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def age_s(timestamp: int, *, now_ms: int) -> float | None:
    """Return how long ago a timestamp was issued; None if it does not tell the time."""
    if timestamp < FIRST_WORLD_TIMESTAMP:
        return None
    return round(max(now_ms - timestamp // 1_000_000, 0) / 1000, 3)


def key_text(key_hex: str, *, empty: str) -> str:
    """Return an end of a key range for a person: printable keys as they are, others in hex."""
    key = bytes.fromhex(key_hex)
    if not key:
        return empty
    text = key.decode("ascii", errors="replace")
    return text if text.isprintable() and "�" not in text else f"0x{key_hex}"


def brief(seconds: float) -> str:
    """Return a duration in its greatest unit: `0.3 s`, `45 s`, `15 min`, `6 h`, `30 d`."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length or seconds == length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.3g} s" if seconds < 10 else f"{seconds:.0f} s"
