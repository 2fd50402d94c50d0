"""Requests and answers of the console: pages, one style sheet, and forms.

No answer can be framed, kept, or run a script: there is none, and the policy of its content says so
to browsers.  What is listened to on this machine alone answers to its names alone, so that a page
of a stranger whose name leads here reads nothing (DNS rebinding).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from omidpy import __version__
from omidpy.base.words.printable import printable
from omidpy.console import drawing
from omidpy.console.deeds import DEEDS, Deed, Entry, Journal, carry_out
from omidpy.console.pages import PAGES, Page
from omidpy.console.parts import DEADLINE_S, Loader
from omidpy.console.people import COOKIE, Person, Proofs, Sessions, Tokens, is_ours
from omidpy.console.sources import Sources, Visit
from omidpy.reports.texts import brief, key_text, moment

logger = logging.getLogger(__name__)

HERE: Final = Path(__file__).parent
MAX_FORM_BYTES: Final = 16 * 1024
FORM_TIMEOUT_S: Final = 5.0
DEED_DEADLINE_S: Final = 10.0
"""How long a page waits for a deed, which then goes on and is in the journal when it ends."""

LIVE_S: Final = 5
"""How often a page that is looked at comes anew, if one asks for that."""

HEADERS: Final = {
    "content-security-policy": "default-src 'none'; style-src 'self'; img-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}

LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})


@dataclass(kw_only=True)
class Console:
    """What requests are answered from."""

    sources: Sources = field(kw_only=False)
    """What is shown."""
    journal: Journal | None = None
    """Where deeds are noted; None: there are none."""
    tokens: Tokens | None = None
    """Who may change something who has no certificate."""
    is_operator: Callable[[str], bool] | None = None
    """Whether the owner of a certificate may; None: certificates say nothing."""
    is_local: bool = True
    """Whether this machine alone reaches us."""
    is_secure: bool = False
    """Whether TLS is spoken."""
    deadline_s: float = DEADLINE_S
    """How long a page waits for its parts."""

    def __post_init__(self) -> None:
        """Begin with nobody signed in."""
        self.loader = Loader(self.deadline_s)
        self.sessions = Sessions()
        self.proofs = Proofs()
        self.templates = _templates()
        self._at_work: list[threading.Thread] = []

    def app(self) -> ASGIApp:
        """Return what a server of ASGI calls."""
        routes = [
            Route("/", self._first),
            Route("/healthz", lambda _: PlainTextResponse("ok\n")),
            Route("/static/{name}", self._static),
            Route("/sign-in", self._sign_in, methods=["GET", "POST"]),
            Route("/sign-out", self._sign_out, methods=["POST"]),
            Route("/deeds/{name}", self._deed, methods=["POST"]),
            Route("/{name}", self._page),
        ]
        return _Guarded(Starlette(routes=routes), is_local=self.is_local)

    def finish(self) -> None:
        """Wait for the deeds that are at work: each is noted when it has ended."""
        for one in self._at_work:
            one.join()

    # -- pages ---------------------------------------------------------------------------------

    async def _first(self, _: Request) -> Response:
        return RedirectResponse("/oracle", 303)

    async def _static(self, request: Request) -> Response:
        kinds = {"console.css": "text/css", "icon.svg": "image/svg+xml"}
        name = request.path_params["name"]
        if name not in kinds:
            raise HTTPException(404, "there is no such file\n")
        return Response((HERE / "static" / name).read_bytes(), media_type=kinds[name])

    async def _page(self, request: Request) -> Response:
        page = PAGES.get(request.path_params["name"])
        if page is None:
            raise HTTPException(404, "there is no such page\n")
        parts = page.parts(Visit(self.sources, request.query_params))
        shown = await self.loader.shown(parts)
        person = self._person(request)
        bodies = [(one, self._body(one, person)) for one in shown]
        return self._rendered("page.html", request, page, person, shown=bodies)

    def _body(self, shown: Any, person: Person | None) -> Markup:
        """Return a part's own markup; one that cannot be shown hides no other."""
        if shown.found is None:
            return Markup()
        try:
            text = self.templates.get_template(f"parts/{shown.part.template}").render(
                found=shown.found, may=person is not None, proof=self._proof(person)
            )
        except Exception:
            logger.exception("the part %s cannot be shown", shown.part.key)
            return Markup('<p class="problem">It cannot be shown; the log says why.</p>')
        return Markup(text)  # noqa: S704 - it was escaped as it was made

    def _rendered(
        self,
        template: str,
        request: Request,
        page: Page | None,
        person: Person | None,
        *,
        status: int = 200,
        **more: Any,
    ) -> Response:
        """Return a page, with what each has around its parts."""
        query = request.query_params
        entries = list(self.journal.entries) if self.journal is not None else []
        rest = {name: value for name, value in query.items() if name not in ("live", "done")}
        around = {
            "page": page,
            "pages": list(PAGES.values()),
            "here": request.url.path,
            "query": query,
            "rest": "&".join(f"{quote(name)}={quote(value)}" for name, value in rest.items()),
            "fields": rest,
            "live_s": LIVE_S if "live" in query and request.method == "GET" else None,
            "store": self.sources.addresses.store,
            "version": __version__,
            "may_operate": self.journal is not None,
            "has_tokens": self.tokens is not None,
            "person": person,
            "proof": self._proof(person),
            "entries": [one for one in entries if page and DEEDS[one.deed].page == page.name],
            "done": next((one for one in entries if one.number == query.get("done")), None),
        }
        text = self.templates.get_template(template).render(around, **more)
        return Response(text, status, media_type="text/html")

    # -- people --------------------------------------------------------------------------------

    def _person(self, request: Request) -> Person | None:
        """Return who asks, if he may change something."""
        if self.journal is None:
            return None
        name = getattr(request.state, "peer", None)
        if name and self.is_operator is not None and self.is_operator(name):
            return Person(name, "certificate", "")
        return self.sessions.of(request.cookies.get(COOKIE, ""))

    def _proof(self, person: Person | None) -> str:
        return "" if person is None else self.proofs.of(person)

    async def _sign_in(self, request: Request) -> Response:
        if self.tokens is None:
            raise HTTPException(404, "nobody signs in here\n")
        person = self._person(request)
        if request.method != "POST":
            return self._rendered("sign-in.html", request, None, person, problem="")
        name = self.tokens.owner((await self._form(request)).get("token", ""))
        if name is None:
            logger.warning("somebody at %s has a token that is nobody's", _peer(request))
            problem = "This token is nobody's."
            return self._rendered(
                "sign-in.html", request, None, person, status=403, problem=problem
            )
        logger.info("%s has signed in from %s", name, _peer(request))
        answer = RedirectResponse("/oracle", 303)
        number = self.sessions.begin(name)
        answer.set_cookie(COOKIE, number, httponly=True, samesite="strict", secure=self.is_secure)
        return answer

    async def _sign_out(self, request: Request) -> Response:
        await self._form(request)
        self.sessions.end(request.cookies.get(COOKIE, ""))
        answer = RedirectResponse("/oracle", 303)
        answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return answer

    # -- deeds ---------------------------------------------------------------------------------

    async def _deed(self, request: Request) -> Response:
        deed = DEEDS.get(request.path_params["name"])
        if self.journal is None or deed is None:
            raise HTTPException(404, "this console changes nothing\n")
        form = await self._form(request)
        person = self._person(request)
        if person is None:
            raise HTTPException(403, "sign in first, with a token or a certificate\n")
        if not self.proofs.holds(person, form.get("proof", "")):
            raise HTTPException(403, "this form was made for somebody else, or long ago\n")
        about = {name: form.get(name, "")[:1000] for name in deed.about}
        try:
            entry = self.journal.begin(person, _peer(request), deed.name, about)
        except OSError as error:
            told = f"the journal cannot be written: {error.strerror}\n"
            raise HTTPException(503, told) from error
        await self._done(deed, form, entry)
        self.loader.forget()
        return RedirectResponse(f"/{deed.page}?done={entry.number}", 303)

    async def _done(self, deed: Deed, form: Mapping[str, str], entry: Entry) -> None:
        """Wait for a deed, but not for ever."""
        assert self.journal is not None, "else there are no deeds"
        journal, loop, ended = self.journal, asyncio.get_running_loop(), asyncio.Event()

        def work() -> None:
            carry_out(deed, self.sources, form, journal, entry)
            self.loader.forget()
            with contextlib.suppress(RuntimeError):  # nobody waits any more: the loop has ended
                loop.call_soon_threadsafe(ended.set)

        at_work = threading.Thread(target=work, name=f"console deed {entry.number}")
        try:
            at_work.start()
        except RuntimeError as error:
            journal.end(entry, "refused", f"nothing was done: {error}")
            return
        self._at_work = [one for one in self._at_work if one.is_alive()] + [at_work]
        try:
            await asyncio.wait_for(ended.wait(), DEED_DEADLINE_S)
        except TimeoutError:
            logger.info("%s is still at work", entry.number)

    async def _form(self, request: Request) -> dict[str, str]:
        """Return what a form of ours holds.

        Raises:
            HTTPException: it is none of ours, or has no end that is soon.
        """
        if not is_ours(request.headers.get("origin"), request.headers.get("host", "")):
            raise HTTPException(403, "this form is on no page of this console\n")
        data = b""
        try:
            async with asyncio.timeout(FORM_TIMEOUT_S):
                async for chunk in request.stream():
                    data += chunk
                    if len(data) > MAX_FORM_BYTES:
                        raise HTTPException(413, "this form is too long\n")
        except TimeoutError as error:
            raise HTTPException(408, "this form does not end\n") from error
        fields = parse_qs(data.decode(errors="replace"), keep_blank_values=True)
        return {name: values[-1] for name, values in fields.items()}


class _Guarded:
    """Puts the headers on every answer, and looks at the name that a request was sent to."""

    def __init__(self, app: ASGIApp, *, is_local: bool) -> None:
        self._app = app
        self._is_local = is_local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse one that was sent to a name of others."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", ()), *own]
            await send(message)

        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if self._is_local and (len(hosts) != 1 or _name_of(hosts[0]) not in LOCAL_NAMES):
            refusal = PlainTextResponse("ask for this console by localhost or 127.0.0.1\n", 421)
            await refusal(scope, receive, guarded)
            return
        await self._app(scope, receive, guarded)


def _name_of(host: str) -> str:
    name, separator, port = host.rpartition(":")
    return name if separator and port.isdigit() else host


def _peer(request: Request) -> str:
    return "?" if request.client is None else request.client.host


def _templates() -> Environment:
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    made.filters.update(
        age=lambda seconds: "unknown" if seconds is None else brief(seconds),
        code=_with_code,
        key=lambda key_hex, empty="": key_text(key_hex, empty=empty),
        moment=moment,
        number=lambda value: f"{value:,}",
    )
    made.globals["draw"] = drawing
    return made


def _shown(value: object) -> object:
    """Return what a template prints: nothing in it moves a cursor, or turns the reading round."""
    return value if isinstance(value, Markup) else printable("" if value is None else str(value))


def _with_code(text: str) -> Markup:
    """Return a sentence of ours, the commands in it as such: they stand in backquotes."""
    parts = printable(text).split("`")
    return Markup().join(
        Markup("<code>{}</code>").format(part)
        if number % 2 and number < len(parts) - 1
        else escape(part)
        for number, part in enumerate(parts)
    )
