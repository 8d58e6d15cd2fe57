"""Login to Dagster's UI: a token for programs, and for browsers a link that exchanges the token for a cookie."""

from pathlib import Path
from urllib.parse import parse_qs, quote

from lakehouse.local.home import Home, write_atomically

PATH = "/login"
TOKEN_VARIABLE = "LAKEHOUSE_UI_TOKEN"  # noqa: S105 (a name)
HOME_PAGE = "/asset-groups"
"""Path of the page after the login."""

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 34rem; margin: 15vh auto; padding: 0 1rem; color: #1d2530 }
code { background: #eef0f3; padding: .1rem .3rem; border-radius: 4px }
input, button { font: inherit; padding: .4rem .6rem; border: 1px solid #8a94a3; border-radius: 6px }
input { width: 20rem; max-width: 100% } button { background: #2456c5; color: white; border-color: #2456c5 }
"""
PAGE_HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'",
    ),
    # A page's URL may contain the token, which other sites must not receive. With `no-referrer`, browsers would also
    # send the login form without its origin.
    (b"referrer-policy", b"same-origin"),
)
"""Headers of the pages of this module."""


def link(address: str, token: str) -> str:
    """Return the link for a browser's login to the UI at an address such as http://127.0.0.1:3000."""
    return f"{address}{PATH}?token={quote(token)}"


def link_file(home: Home, link: str) -> Path:
    """Write a page that redirects to a link, and return its path.

    Browsers are started with this path, because every user of the machine can see the arguments of a process.
    """
    content = f'<!doctype html><meta http-equiv="refresh" content="0;url={link}">'
    return write_atomically(home.folder("secrets") / "login.html", content)


def bearer(token: str) -> dict[str, str]:
    """Return the header for a program's login."""
    return {"Authorization": f"Bearer {token}"}


def token_of_query(query: bytes) -> str | None:
    """Return the token of a login link or of the login form, if there is one."""
    return parse_qs(query.decode("latin-1")).get("token", [None])[-1]


def login_page(problem: str = "") -> str:
    """Return the page with a form for the token."""
    return _page(
        "Log in to Dagster",
        f"<p><strong>{problem}</strong></p>" if problem else "",
        "<p>Run <code>lakehouse ui</code> in the project's folder and open the link it prints, or paste the token"
        " from that link here.</p>",
        f'<form method="post" action="{PATH}"><input type="password" name="token" aria-label="Token" required autofocus'
        ' autocomplete="off"> <button>Log in</button></form>',
    )


def entered_page() -> str:
    """Return the page after a login.

    The page loads the UI itself. Browsers attribute an HTTP redirect to the site that contained the link, such as a
    terminal in a browser, and the server would refuse it. No referrer reveals the address with the token to the UI.
    """
    return _page(
        "Logged in",
        '<meta name="referrer" content="no-referrer">',
        f'<meta http-equiv="refresh" content="0;url={HOME_PAGE}">',
        f'<p><a href="{HOME_PAGE}">Continue to Dagster</a></p>',
    )


def foreign_link_page() -> str:
    """Return the page for a link on another site, such as an alert in a chat. The user's click on it confirms it."""
    return _page(
        "Continue to Dagster?",
        "<p>This page was opened by a link on another site. Continue only if you clicked it.</p>",
        '<p><a href="">Continue to Dagster</a></p>',
    )


def _page(title: str, *body: str) -> str:
    head = f'<meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body><h1>{title}</h1>{"".join(body)}</body></html>'
