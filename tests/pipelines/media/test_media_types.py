"""Point 2 of the spec: the type of a file by its first bytes."""

from __future__ import annotations

import pytest

from esclusa.pipelines.media.media_types import media_type


def iso(major: bytes, *others: bytes) -> bytes:
    brands = major + bytes(4) + b"".join(others)
    return (8 + len(brands)).to_bytes(4, "big") + b"ftyp" + brands + b"\0" * 40


MEDIA = {
    ".jpg": [b"\xff\xd8\xff\xe0\x00\x10JFIF", b"\xff\xd8\xff\xe1 Exif", b"\xff\xd8\xff\xdb"],
    ".png": [b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"],
    ".gif": [b"GIF87a..", b"GIF89a.."],
    ".webp": [b"RIFF\x10\0\0\0WEBPVP8L"],
    ".bmp": [
        b"BM" + (1000).to_bytes(4, "little") + bytes(4) + (54).to_bytes(4, "little") + bytes(40)
    ],
    ".tiff": [b"II*\0....", b"MM\0*...."],
    ".avif": [iso(b"avif", b"mif1"), iso(b"mif1", b"avif", b"miaf")],
    ".heic": [iso(b"heic", b"mif1"), iso(b"mif1", b"heic")],
    ".heif": [iso(b"mif1", b"miaf")],
    ".mp4": [iso(b"isom", b"mp41"), iso(b"mp42"), iso(b"avc1"), iso(b"3gp5")],
    ".mov": [iso(b"qt  "), b"\0\0\0\x08wide\0\0\0\0mdat", b"\0\0\x01\0moov....", b"\x0a\0\0\0mdat"],
    ".webm": [b"\x1a\x45\xdf\xa3\x9f\x42\x82\x84webm"],
    ".mkv": [b"\x1a\x45\xdf\xa3\xa3\x42\x82\x88matroska"],
    ".avi": [b"RIFF\x10\0\0\0AVI LIST"],
    ".mpg": [b"\0\0\x01\xba\x44", b"\0\0\x01\xb3\x14"],
    ".ts": [(b"G" + bytes(187)) * 3],
    ".ogv": [
        b"OggS\0\x02" + bytes(22) + b"\x80theora\x03\x02",
        b"OggS\0\x02" + bytes(22) + b"fishead\0",
    ],
    ".flv": [b"FLV\x01\x05"],
}


@pytest.mark.parametrize(
    ("extension", "head"), [(e, h) for e, heads in MEDIA.items() for h in heads]
)
def test_media(extension: str, head: bytes) -> None:
    found = media_type(head)
    assert found is not None
    assert found.extension == extension
    assert found.mime.startswith(("image/", "video/"))


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"\xff\xd8",
        b"<svg xmlns=",
        b'<?xml version="1.0"?><svg',
        b"<!DOCTYPE html>",
        b"<html>",
        b"{}",
        b"%PDF-1.7",
        b"PK\x03\x04",
        b"MZ\x90",
        b"BM is how this text begins, and it is long enough",
        b"RIFF\x10\0\0\0WAVEfmt ",
        b"ID3\x04",
        iso(b"M4A "),
        b"GIF",
        b"The free trial is over.",
        b"You skipped a step: log in",
        b"URL signature expired",
        b"the ftyp of a film",
        b"\n\n\n\nfree of charge",
        b"\r\n\r\nskip it",
        b"\t   wide",
        b"\0\0\0\x18ftyp",
        b"OggS\0\x02" + bytes(22) + b"\x01vorbis",
        b"OggS\0\x02" + bytes(22) + b"OpusHead",
        b"\x1a\x45\xdf\xa3 neither",
        b"\x7fELF",
        b"#!/bin/sh",
        b"\0" * 600,
    ],
)
def test_other_content(head: bytes) -> None:
    assert media_type(head) is None
