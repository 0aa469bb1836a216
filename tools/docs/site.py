"""The site of the documentation: static pages with search, which work from a folder, offline."""

from __future__ import annotations

import json
import posixpath
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from jinja2 import Environment, FileSystemLoader
from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "site"
THEME = Path(__file__).parent / "theme"

# The sidebar: each section and its pages, in order. A test checks that no page is missing.
SECTIONS: dict[str, tuple[str, ...]] = {
    "Tutorial": ("README.md", "docs/tutorial.md"),
    "How to": (
        "docs/howto/test.md",
        "docs/adopt.md",
        "docs/howto/wait-join-approve.md",
        "docs/howto/lifecycle.md",
        "docs/howto/deploy.md",
        "docs/howto/upgrade.md",
        "docs/howto/operate.md",
        "docs/howto/monitor.md",
        "docs/howto/tune.md",
        "docs/howto/install.md",
        "docs/howto/fastapi.md",
        "docs/howto/sqlalchemy.md",
        "docs/howto/django.md",
        "docs/howto/mcp.md",
    ),
    "Explanation": (
        "docs/concepts.md",
        "docs/comparison.md",
        "docs/peers.md",
        "docs/reliability.md",
        "docs/security.md",
        "docs/stores.md",
        "docs/postgres.md",
        "docs/scale.md",
        "docs/firestore.md",
        "bench/README.md",
        "ARCHITECTURE.md",
    ),
    "Reference": (
        "docs/reference.md",
        "docs/python.md",
        "docs/operations.md",
        "docs/console.md",
        "docs/exports.md",
        "docs/glossary.md",
        "CHANGELOG.md",
    ),
    "Pipelines": (
        "docs/pipelines/replies.md",
        "docs/pipelines/tenders.md",
        "docs/pipelines/media.md",
        "docs/pipelines/documents.md",
    ),
    "Project": (
        "CONTRIBUTING.md",
        "SECURITY.md",
        "CODE_OF_CONDUCT.md",
        "deploy/README.md",
        "deploy/compose/README.md",
        "deploy/cloudrun/README.md",
        "README.es.md",
    ),
}
_PICTURES = (".png", ".svg", ".jpg")
# The most text of a section that the search reads.
_SEARCHED = 4000


@dataclass
class SitePage:
    """One page: its source in the repository, and what was made of it."""

    source: str
    title: str
    body: str
    anchors: set[str]
    headings: list[tuple[int, str, str]] = field(default_factory=list)
    sections: list[dict[str, str]] = field(default_factory=list)
    description: str = ""
    text: str = ""

    @property
    def url(self) -> str:
        return address(self.source)


def address(source: str) -> str:
    """Where the site has a file of the repository; a path below the site's folder."""
    if source == "README.md":
        return "index.html"
    path = source.removeprefix("docs/")
    if not source.endswith(".md"):
        return f"files/{source}.html"
    return f"{path.removesuffix('.md').replace('/README', '')}.html".lower()


def pages() -> list[str]:
    """Every page of the sidebar."""
    return [page for section in SECTIONS.values() for page in section]


def build(folder: Path = FOLDER, sources: Sequence[str] | None = None) -> list[str]:
    """Write the whole site into the folder, which is emptied first; return its addresses.

    Raises FileNotFoundError for a page or a link of which there is no file.
    """
    shutil.rmtree(folder, ignore_errors=True)
    made = {source: _page(source) for source in sources or pages()}
    # A file that a page links to gets a page with its text; folders list their files.
    waiting = sorted({link for page in made.values() for link in _linked(page.body)} - set(made))
    files = {source: _file_page(source) for source in waiting}
    for listed in list(files.values()):
        for each in _linked(listed.body):
            if each not in files and each not in made:
                files[each] = _file_page(each)
    template = Environment(loader=FileSystemLoader(THEME), autoescape=True).get_template(
        "page.html"
    )
    for page in [*made.values(), *files.values()]:
        path = folder / page.url
        path.parent.mkdir(parents=True, exist_ok=True)
        root = "../" * page.url.count("/")
        navigation = [
            {
                "title": title,
                "pages": [
                    {"url": root + made[s].url, "title": made[s].title, "here": s == page.source}
                    for s in listed
                    if s in made
                ],
            }
            for title, listed in SECTIONS.items()
        ]
        path.write_text(
            template.render(
                page=page, root=root, body=_relative(page, folder), navigation=navigation
            ),
            encoding="utf-8",
        )
        if page.text:
            path.with_suffix(".md").write_text(page.text, encoding="utf-8")
    for asset in ("site.css", "site.js"):
        shutil.copyfile(THEME / asset, folder / asset)
    index = [section for page in made.values() for section in page.sections]
    written = json.dumps(index, ensure_ascii=False, separators=(",", ":"))
    # A script, because a page that is opened from a folder cannot fetch a file.
    (folder / "search-index.js").write_text(f"window.searchIndex = {written};\n", "utf-8")
    (folder / "llms.txt").write_text(_llms(made), "utf-8")
    return [page.url for page in [*made.values(), *files.values()]]


# one page


def _page(source: str) -> SitePage:
    text = (ROOT / source).read_text(encoding="utf-8")
    markdown = MarkdownIt("commonmark", {"highlight": _highlighted}).enable("table")
    tokens = markdown.parse(text)
    page = SitePage(source, source, "", set(), text=text)
    _name_headings(tokens, page)
    for token in _all_tokens(tokens):
        for attribute in ("href", "src"):
            link = token.attrGet(attribute)
            if isinstance(link, str):
                token.attrSet(attribute, _resolved(link, source))
    page.body = markdown.renderer.render(tokens, markdown.options, {})
    page.body = page.body.replace("<table>", '<div class="table"><table>').replace(
        "</table>", "</table></div>"
    )
    _index(tokens, page)
    return page


def _all_tokens(tokens: Sequence[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from _all_tokens(token.children or ())


def _plain(token: Token) -> str:
    """The text of an inline token, without its marks."""
    parts = (
        each.content if each.type in ("text", "code_inline") else " "
        for each in token.children or ()
        if each.type in ("text", "code_inline", "softbreak", "hardbreak")
    )
    return "".join(parts)


def _name_headings(tokens: Sequence[Token], page: SitePage) -> None:
    """Give each heading its anchor, and the page its title."""
    for token, inline in pairwise(tokens):
        if token.type != "heading_open":
            continue
        text = _plain(inline)
        anchor = base = slug(text)
        number = 0
        while anchor in page.anchors:
            number += 1
            anchor = f"{base}-{number}"
        page.anchors.add(anchor)
        token.attrSet("id", anchor)
        level = int(token.tag[1])
        if level == 1 and page.title == page.source:
            page.title = text
        page.headings.append((level, anchor, text))


def slug(text: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def _index(tokens: Sequence[Token], page: SitePage) -> None:
    """What the search reads: the text below each heading."""
    anchor, title, parts = "", page.title, list[str]()

    def end() -> None:
        text = " ".join(" ".join(parts).split())[:_SEARCHED]
        url = f"{page.url}#{anchor}" if anchor else page.url
        if text or anchor:
            page.sections.append({"p": page.title, "t": title, "u": url, "x": text})
        if not page.description and text:
            page.description = re.split(r"(?<=[.:]) ", text, maxsplit=1)[0]

    for before, token in zip([None, *tokens], tokens, strict=False):
        if before is not None and before.type == "heading_open":
            end()
            anchor, title, parts = str(before.attrGet("id")), _plain(token), []
        elif token.type == "inline":
            parts.append(_plain(token))
        elif token.type == "fence" and token.info != "mermaid":
            parts.append(token.content)
    end()


def _highlighted(code: str, language: str, attributes: str) -> str:
    """The code with a class for each kind of word."""
    if language == "console":
        lines = (
            f'<span class="typed">{escape(line)}</span>' if line.startswith("$ ") else escape(line)
            for line in code.splitlines()
        )
        shown = "\n".join(lines)
        return f'<pre><code class="language-console">{shown}\n</code></pre>'
    try:
        lexer = get_lexer_by_name(language or "text")
    except ClassNotFound:
        lexer = get_lexer_by_name("text")
    marked = highlight(code, lexer, HtmlFormatter(nowrap=True))
    name = f' class="language-{escape(language)}"' if language else ""
    return f"<pre><code{name}>{marked}</code></pre>"


# links


def _resolved(link: str, source: str) -> str:
    """A link to a file of the repository as ``repository:path#anchor``; others as they are."""
    parts = urlsplit(link)
    if parts.scheme or link.startswith(("//", "mailto:")):
        return link
    if not parts.path:
        return f"repository:{source}#{parts.fragment}"
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), unquote(parts.path)))
    if not (ROOT / path).exists():
        raise FileNotFoundError(f"{source}: the link {link} leads to no file")
    return f"repository:{path}" + (f"#{parts.fragment}" if parts.fragment else "")


_LINK = re.compile(r'(href|src)="repository:([^"#]*)(#[^"]*)?"')


def _linked(body: str) -> set[str]:
    """The files and folders of the repository that a page links to, without pictures."""
    found = {match[2] for match in _LINK.finditer(body)}
    return {path for path in found if not path.endswith(_PICTURES)}


def _relative(page: SitePage, folder: Path) -> str:
    """The body with links relative to the page; pictures are copied beside it."""
    here = posixpath.dirname(page.url)

    def replaced(match: re.Match[str]) -> str:
        attribute, path, anchor = match[1], match[2], match[3] or ""
        if path.endswith(_PICTURES):
            to = f"pictures/{PurePosixPath(path).name}"
            (folder / "pictures").mkdir(exist_ok=True)
            shutil.copyfile(ROOT / path, folder / to)
        else:
            to = address(path)
        return f'{attribute}="{posixpath.relpath(to, here or ".")}{anchor}"'

    return _LINK.sub(replaced, page.body)


def _file_page(source: str) -> SitePage:
    """A page with the text of a file, or with the list of the files of a folder."""
    path = ROOT / source
    if path.is_dir():
        names = sorted(
            p.name + ("/" if p.is_dir() else "")
            for p in path.iterdir()
            if not p.name.startswith((".", "__"))
        )
        kept = [n for n in names if not n.endswith(("/", *_PICTURES))]
        items = "".join(
            f'<li><a href="repository:{escape(source)}/{escape(n)}">{escape(n)}</a></li>'
            for n in kept
        )
        body = f"<h1>{escape(source)}</h1><ul>{items}</ul>"
    else:
        language = {".py": "python", ".toml": "toml", ".yaml": "yaml", ".sh": "sh"}
        code = _highlighted(path.read_text("utf-8"), language.get(path.suffix, ""), "")
        body = f"<h1>{escape(source)}</h1>{code}"
    return SitePage(source, source, body, set())


def _llms(made: dict[str, SitePage]) -> str:
    """The list of pages for language models: https://llmstxt.org."""
    lines = ["# Esclusa", "", "> Durable record pipelines for Python: the record is the queue.", ""]
    for title, listed in SECTIONS.items():
        found = [made[source] for source in listed if source in made]
        if not found:
            continue
        lines += [f"## {title}", ""]
        for page in found:
            url = page.url.removesuffix(".html") + ".md"
            lines.append(f"- [{page.title}]({url}): {page.description}")
        lines.append("")
    return "\n".join(lines)


def broken_links(folder: Path) -> list[str]:
    """Each link of the built pages that leads to no file, or to an anchor that is not there."""
    found: dict[Path, Any] = {}
    for path in folder.rglob("*.html"):
        text = path.read_text("utf-8")
        ids = set(re.findall(r'\bid="([^"]*)"', text))
        found[path.resolve()] = (re.findall(r'\b(?:href|src)="([^"]*)"', text), ids)
    faults = []
    for path, (links, _) in found.items():
        for link in links:
            parts = urlsplit(link)
            if parts.scheme in ("http", "https", "mailto"):
                continue
            to = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not to.is_file():
                faults.append(f"{path.relative_to(folder.resolve())}: {link}: no such file")
            elif parts.fragment and unquote(parts.fragment) not in found[to][1]:
                faults.append(f"{path.relative_to(folder.resolve())}: {link}: no such anchor")
    return faults
