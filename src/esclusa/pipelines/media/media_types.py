"""The type of an image or a video by its first bytes; names and Content-Type headers are ignored.

SVG is not accepted: it can contain scripts that a browser runs.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MediaType:
    """A MIME type and the file extension for it."""

    mime: str
    extension: str


_SIGNATURES: tuple[tuple[bytes, MediaType], ...] = (
    (b"\xff\xd8\xff", MediaType("image/jpeg", ".jpg")),
    (b"\x89PNG\r\n\x1a\n", MediaType("image/png", ".png")),
    (b"GIF87a", MediaType("image/gif", ".gif")),
    (b"GIF89a", MediaType("image/gif", ".gif")),
    (b"II*\x00", MediaType("image/tiff", ".tiff")),
    (b"MM\x00*", MediaType("image/tiff", ".tiff")),
    (b"II+\x00", MediaType("image/tiff", ".tiff")),
    (b"MM\x00+", MediaType("image/tiff", ".tiff")),
    (b"\xff\x0a", MediaType("image/jxl", ".jxl")),
    (b"\x00\x00\x00\x0cJXL \r\n\x87\n", MediaType("image/jxl", ".jxl")),
    (b"\x00\x00\x00\x0cjP  \r\n\x87\n", MediaType("image/jp2", ".jp2")),
    (b"FLV\x01", MediaType("video/x-flv", ".flv")),
    (b"\x00\x00\x01\xba", MediaType("video/mpeg", ".mpg")),
    (b"\x00\x00\x01\xb3", MediaType("video/mpeg", ".mpg")),
    (b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", MediaType("video/x-ms-wmv", ".wmv")),
)

_BRANDS: dict[bytes, MediaType] = {
    b"avif": MediaType("image/avif", ".avif"),
    b"avis": MediaType("image/avif", ".avif"),
    b"qt  ": MediaType("video/quicktime", ".mov"),
    b"M4V ": MediaType("video/x-m4v", ".m4v"),
    **dict.fromkeys(
        (b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis"), MediaType("image/heic", ".heic")
    ),
}
# Names of a video's first box, and the limit of the first byte of its length.
#
# The limit keeps out plain text such as "the ftyp", or "free" after empty lines.
_BOXES = {b"ftyp": 0x01, b"moov": 0x09, b"wide": 0x09, b"free": 0x09, b"skip": 0x09, b"mdat": 0x20}

_AUDIO_BRANDS = (b"M4A ", b"M4B ", b"M4P ", b"F4A ", b"F4B ")
_OGG_VIDEO_CODECS = (b"\x80theora", b"BBCD", b"OVP80", b"\x01video", b"fishead")


def media_type(head: bytes) -> MediaType | None:
    """Return the type of the image or video that begins with these bytes; None if it is neither."""
    for signature, found in _SIGNATURES:
        if head.startswith(signature):
            return found
    if head[:4] == b"RIFF":
        return {
            b"WEBP": MediaType("image/webp", ".webp"),
            b"AVI ": MediaType("video/x-msvideo", ".avi"),
        }.get(head[8:12])
    if head[4:8] in _BOXES and head[0] < _BOXES[head[4:8]]:
        # Early QuickTime files have no brand.
        return _brand(head) if head[4:8] == b"ftyp" else MediaType("video/quicktime", ".mov")
    if head.startswith(b"OggS"):  # audio has this signature too; the first page names the codec
        is_video = any(codec in head[:128] for codec in _OGG_VIDEO_CODECS)
        return MediaType("video/ogg", ".ogv") if is_video else None
    if head.startswith(b"\x1a\x45\xdf\xa3"):
        if b"webm" in head[:64]:
            return MediaType("video/webm", ".webm")
        return MediaType("video/x-matroska", ".mkv") if b"matroska" in head[:64] else None
    if head[:2] == b"BM" and len(head) >= 26 and head[6:10] == bytes(4):
        return MediaType("image/bmp", ".bmp")
    if len(head) > 376 and head[0] == head[188] == head[376] == 0x47:
        return MediaType("video/mp2t", ".ts")
    return None


def _brand(head: bytes) -> MediaType | None:
    """Return the type that the brands of an ISO file name; the major brand comes first."""
    size = min(max(int.from_bytes(head[:4], "big"), 16), 256)
    major = head[8:12]
    for brand in (major, *[head[at : at + 4] for at in range(16, size, 4)]):
        if brand in _BRANDS:
            return _BRANDS[brand]
    if major in (b"mif1", b"msf1"):
        return MediaType("image/heif", ".heif")
    return None if major in _AUDIO_BRANDS or len(head) < 12 else MediaType("video/mp4", ".mp4")
