"""Which artifact paths are allowed, and safe path segments from any value."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache

from esclusa.model.errors import ArtifactError

# Prefix of names that belong to the artifact stores themselves (files being written).
RESERVED = ".esclusa-"

# Bytes in one segment: the limit of common file systems.
MAX_SEGMENT = 255

# Bytes in a whole path. Object stores take 1,024 for a key, prefix included.
MAX_PATH = 900

_MAX_MADE = 150
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_DRIVE = re.compile(r"[A-Za-z]:")
_UNSAFE = re.compile(rb"[^A-Za-z0-9_.-]")
# Matches most valid paths at once, before the slower checks.
_PLAIN = re.compile(r"(?:[\w%~-][\w.%~-]{0,199}/)*[\w%~-][\w.%~-]{0,199}\Z", re.ASCII).match

# Bytes of a segment that reads as its value does: four of them fit into a path.
_MAX_PLAIN = 200
_ESCAPED = "=~"
_NOT_PLAIN = re.compile("[\x00-\x1f\x7f-\x9f/\\\\\ud800-\udfff]")
# Matches values that need no escape.
_SAFE = re.compile(r"[\w-](?:[\w.-]{0,148}[\w-])?\Z", re.ASCII).match


def clean(path: str) -> str:
    """Return the path if it is relative, plain and short enough; otherwise raise ArtifactError.

    A path is never corrected: two spellings of one path would be two objects in one store and one
    object in another.
    """
    why = fault(path)
    if why is not None:
        raise ArtifactError(f"bad artifact path {_shown(path)}: {why}")
    return path


def clean_prefix(prefix: str) -> str:
    """Like ``clean``, for a prefix: it may be empty, or end in a slash or within a name."""
    if prefix:
        why = fault(prefix[:-1]) if prefix.endswith("/") else fault(prefix, partial=True)
        if why is not None:
            raise ArtifactError(f"bad artifact prefix {_shown(prefix)}: {why}")
    return prefix


def segment(text: str | int) -> str:
    """A safe path segment for a value of a record. Different values give different segments.

    Letters, digits, ``_``, ``-`` and inner dots stay as they are. Everything else is
    percent-escaped, so that ``../x`` is one harmless name. A long value is cut and ends in its
    hash. Use it wherever a field goes into a path: ``f"media/{segment(post.id)}.jpg"``.
    """
    if isinstance(text, bool) or not isinstance(text, str | int):
        raise TypeError(f"a path segment is made of a str or an int, not of {type(text).__name__}")
    text = str(text)
    if _SAFE(text):
        return text
    raw = text.encode("utf-8", "surrogatepass")
    if not raw:
        return "%empty"  # no other value gives this: it is not a valid escape
    made = _UNSAFE.sub(lambda found: b"%%%02X" % found[0][0], raw).decode("ascii")
    if made.startswith("."):
        made = "%2E" + made[1:]
    if made.endswith("."):
        made = made[:-1] + "%2E"
    if len(made) <= _MAX_MADE:
        return made
    start = re.sub(r"%.?$", "", made[: _MAX_MADE - 42])  # no half escape
    return f"{start}%~{hashlib.sha256(raw).hexdigest()[:40]}"


@lru_cache(maxsize=4096)  # most paths repeat the names of their folders
def plain_segment(text: str) -> str:
    r"""A path segment that reads as the value does. Different values give different segments.

    A value stays as it is unless it contains ``/``, ``\\`` or a control character, is ``.`` or
    ``..``, or is longer than 200 bytes. Any other one begins with ``=~``, and these characters are
    ``=`` and two hexadecimal digits for each byte, which no URL changes.
    """
    raw = text.encode("utf-8", "surrogatepass")
    if (
        text not in ("", ".", "..")
        and len(raw) <= _MAX_PLAIN
        and not text.startswith((_ESCAPED, RESERVED))
        and not _NOT_PLAIN.search(text)
    ):
        return text
    made = _ESCAPED + _NOT_PLAIN.sub(_escape, text.replace("=", "=3D"))
    size = len(made.encode())
    if size <= _MAX_PLAIN:
        return made
    start = made.encode()[: _MAX_PLAIN - 44].decode(errors="ignore")
    return f"{re.sub(r'=.?$', '', start)}=~{hashlib.sha256(raw).hexdigest()[:40]}"


def _escape(found: re.Match[str]) -> str:
    return "".join(f"={byte:02X}" for byte in found[0].encode("utf-8", "surrogatepass"))


def fault(path: object, *, partial: bool = False) -> str | None:
    """What is wrong with the path, or None. A ``partial`` path may end within a name."""
    if not isinstance(path, str):
        return "it is not text"
    if len(path) <= MAX_PATH and _PLAIN(path):
        return None
    if not path:
        return "it is empty"
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        return "it is not valid Unicode (a lone surrogate)"
    if size > MAX_PATH:
        return f"it is {size} bytes long, the limit is {MAX_PATH}"
    if _CONTROL.search(path):
        return "it contains a control character"
    if "\\" in path:
        return "it contains a backslash; folders are separated by /"
    if path.startswith("/") or _DRIVE.match(path):
        return "it is absolute; paths are relative to the store's root"
    parts = path.split("/")
    for position, part in enumerate(parts):
        why = _segment_fault(part, open_end=partial and position == len(parts) - 1)
        if why is not None:
            return why
    return None


def _segment_fault(part: str, *, open_end: bool) -> str | None:
    if not part:
        return "it has an empty segment"
    if part == ".." or (part == "." and not open_end):
        return f"the segment {part!r} is not a name"
    if part.startswith(RESERVED):
        return f"names that begin with {RESERVED} are the store's own"
    if len(part.encode()) > MAX_SEGMENT:
        return f"a segment is longer than {MAX_SEGMENT} bytes"
    return None


def _shown(path: object) -> str:
    text = ascii(path)
    return text if len(text) <= 200 else f"{text[:120]}… ({len(text)} characters)"
