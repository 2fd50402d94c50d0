"""The client's steps of the SASL mechanism GSSAPI, which HBase and its gateways both speak.

Over a security context of the package `gssapi`, whose failures pass through.  How tokens are
framed, which name the server has, and what a failure means to a user is each road's own.

ZooKeeper speaks it, too; there kazoo takes the steps.

Source: RFC 4752.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from omidpy.storage.hbase.addresses.gateways import Protection

LAYER_BITS: Final[dict[Protection, int]] = {"auth": 1, "auth-int": 2, "auth-conf": 4}
LONGEST_MESSAGE_BYTES: Final = 2**24 - 1
"""The longest wrapped message that we say we take; the field has three bytes."""


class WrongForm(ValueError):
    """The server's offer of protections is none."""


class NotOffered(ValueError):
    """The server does not offer the protection that is asked for."""

    def __init__(self, offered: int) -> None:
        """Take the bits of what it offers."""
        names = [name for name, bit in LAYER_BITS.items() if offered & bit]
        self.choices = " or ".join(names) or "nothing"
        """As an address has them."""
        super().__init__(self.choices)


class NotEncrypted(ValueError):
    """A message came that is not encrypted, and should be."""


def security_context(gssapi: Any, name: Any, protection: Protection, *, keeps_order: bool) -> Any:
    """Return a context that calls a server by its name.

    Args:
        gssapi: The package.
        name: The server's, as the package has it.
        protection: What is asked for after the negotiation.
        keeps_order: Refuse messages that come in another order than they were sent in.
    """
    flags = gssapi.RequirementFlag.mutual_authentication
    if keeps_order:
        flags |= gssapi.RequirementFlag.out_of_sequence_detection
    if protection != "auth":
        flags |= gssapi.RequirementFlag.integrity
    if protection == "auth-conf":
        flags |= gssapi.RequirementFlag.confidentiality
    return gssapi.SecurityContext(name=name, usage="initiate", flags=flags)


class Steps:
    """One negotiation, and the messages behind it."""

    def __init__(self, context: Any, protection: Protection) -> None:
        """Begin with a context."""
        self.context = context
        self._protection = protection
        self.server_bytes = 0
        """The longest message that the server takes, once it has offered."""
        self.is_done = False
        """Whether a protection was chosen."""

    @property
    def is_known(self) -> bool:
        """Whether both sides have proved who they are, so that an offer comes next."""
        return bool(self.context.complete)

    def token(self, challenge: bytes | None) -> bytes:
        """Return what proves who we are, in answer to the server; None begins."""
        return self.context.step(challenge) or b""

    def read_offer(self, challenge: bytes) -> None:
        """Hold what the server offers against what is asked for.

        Raises:
            WrongForm: it is no offer, or comes again.
            NotOffered: it lacks that.
        """
        offered: bytes = self.context.unwrap(challenge).message
        if self.is_done or len(offered) != 4:
            raise WrongForm("the offer of protections has the wrong form")
        if not offered[0] & LAYER_BITS[self._protection]:
            raise NotOffered(offered[0])
        self.server_bytes = int.from_bytes(offered[1:])

    def choose(self) -> bytes:
        """Return what chooses the protection that is asked for."""
        # No layer takes no messages.  An empty identity means that of the ticket.
        longest = 0 if self._protection == "auth" else LONGEST_MESSAGE_BYTES
        choice = struct.pack(">I", LAYER_BITS[self._protection] << 24 | longest)
        answer: bytes = self.context.wrap(choice, False).message
        self.is_done = True
        return answer

    def wrap(self, plain: bytes) -> bytes:
        """Return a message of what is to be sent."""
        wrapped: bytes = self.context.wrap(plain, self._protection == "auth-conf").message
        return wrapped

    def unwrap(self, wrapped: bytes) -> bytes:
        """Return what a message says.

        Raises:
            NotEncrypted: it should be.
        """
        unwrapped = self.context.unwrap(wrapped)
        if self._protection == "auth-conf" and not unwrapped.encrypted:
            raise NotEncrypted("a message is not encrypted")
        plain: bytes = unwrapped.message
        return plain
