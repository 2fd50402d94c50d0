"""Can a text be the name of a host?"""

from __future__ import annotations


def is_host(text: str) -> bool:
    """Say whether a name can be looked up: what cannot is met with an error that is no OSError.

    An address of IPv4, or of IPv6 without brackets, can.
    """
    try:
        text.encode("idna")
    except UnicodeError:  # a label of none, or of more than 63 characters
        return False
    return bool(text) and "\0" not in text
