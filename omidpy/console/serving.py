"""The console's socket: where it listens, and TLS."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import uvicorn

from omidpy.base.telemetry.events import TEXT, log_event
from omidpy.base.telemetry.streams import tell
from omidpy.console.app import Console
from omidpy.console.crowd import MAX_CONNECTIONS, Crowd, Guarded, Shaking
from omidpy.console.deeds import Journal
from omidpy.console.settings import Settings
from omidpy.console.sources import Sources
from omidpy.errors import ConfigError
from omidpy.oracle.address import address_text

log = logging.getLogger(__name__)

MAX_HEAD_BYTES: Final = 16 * 1024
SHUTDOWN_S: Final = 5


def serve(settings: Settings, sources: Sources, *, log_format: str = TEXT) -> None:
    """Answer until a signal ends that.

    Args:
        settings: What it was told.
        sources: Where it looks.
        log_format: As text it is a line for a person that says where it listens, else an event.

    Raises:
        ConfigError: the address is taken, or a file of TLS or the journal does not fit.
    """
    with contextlib.ExitStack() as stack:
        context: ssl.SSLContext | None = None
        is_operator: Callable[[str], bool] | None = None
        if settings.tls is not None:
            from omidpy.wire.messages import ALL_ROLES  # noqa: PLC0415 - only with TLS
            from tso.serving.tls import ServerTls  # noqa: PLC0415 - application

            tls = ServerTls(settings.tls)
            context = tls.context
            if tls.asks_for_certificates:
                is_operator = lambda name: tls.roles(name) == ALL_ROLES  # noqa: E731 - one line
        journal = None
        if settings.journal is not None:
            journal = stack.enter_context(contextlib.closing(Journal(settings.journal)))
        console = Console(
            sources,
            journal=journal,
            tokens=settings.tokens,
            is_operator=is_operator,
            is_local=settings.is_local,
            is_secure=context is not None,
        )
        stack.enter_context(contextlib.closing(sources))
        stack.callback(console.finish)
        listening = stack.enter_context(contextlib.closing(bound(settings)))
        sources.watch()
        _say(listening, log_format, is_secure=context is not None)
        server_of(console, context).run(sockets=[listening])


def server_of(console: Console, context: ssl.SSLContext | None) -> uvicorn.Server:
    """Return what answers for a console, with TLS if there is a context."""
    crowd = Crowd()
    http: Any = partial(Guarded, crowd)
    if context is not None:
        http = partial(Shaking, crowd, context)
    return uvicorn.Server(
        uvicorn.Config(
            console.app(),
            http=http,
            # The loop of uvloop hands out the first bytes of a connection that was paused before.
            loop="asyncio" if context is not None else "auto",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=MAX_CONNECTIONS,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
            timeout_graceful_shutdown=SHUTDOWN_S,
        )
    )


def bound(settings: Settings) -> socket.socket:
    """Take the address that is listened to.

    Raises:
        ConfigError: it is taken, or is none of this machine.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((settings.host, settings.port))
        listening.listen()  # so that nobody is turned away who was told where, before it is served
    except OSError as error:
        listening.close()
        place = address_text((settings.host, settings.port))
        raise ConfigError(f"--listen {place}: {error.strerror}") from error
    return listening


def _say(listening: socket.socket, log_format: str, *, is_secure: bool) -> None:
    """Say where, for the person or the program that waits for it."""
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    place = address_text(listening.getsockname()[:2])
    scheme = "https" if is_secure else "http"
    if log_format == TEXT:
        tell(f"console at {scheme}://{place}/")
    else:
        log_event(log, logging.INFO, "listening", address=f"{scheme}://{place}/")
