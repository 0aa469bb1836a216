"""Artifact paths that every store must refuse, each with a part of the error message."""

from __future__ import annotations

from esclusa.artifacts.paths import MAX_PATH, MAX_SEGMENT

BAD_PATHS = {
    "": "empty",
    "/etc/passwd": "absolute",
    "//host/share": "absolute",
    "C:/windows": "absolute",
    "c:x": "absolute",
    "..": "'..'",
    "../x": "'..'",
    "a/../../x": "'..'",
    "a/..": "'..'",
    ".": "'.'",
    "a/./b": "'.'",
    "a//b": "empty segment",
    "a/": "empty segment",
    "a\\b": "backslash",
    "..\\x": "backslash",
    "a\0b": "control",
    "a\nb": "control",
    "a\x7fb": "control",
    "a\x85b": "control",
    "a/\ud800": "surrogate",
    ".esclusa-making/x": "own",
    "x" * (MAX_SEGMENT + 1): "segment is longer",
    "ñ" * 128: "segment is longer",
    "x/" * (MAX_PATH // 2) + "x": "limit",
}
