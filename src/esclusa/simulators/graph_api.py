"""Meta's Graph API, as far as a download job asks it for fresh links of media.

- ``GET /{version}/{photo-id}?fields=images``, ``/{video-id}?fields=source``,
  ``/{post-id}?fields=attachments{media,subattachments},full_picture``: with a valid token, in the
  header ``Authorization: Bearer`` or as ``access_token``. Errors are Meta's objects: code 190
  without a valid token, 100 for an object that does not exist, 4 while throttled.
- ``POST /_media``: ``{"id": …, "link": …}`` a photo or video, ``{"id": …, "links": […]}`` a post.
  ``POST /_token``: ``{"token": …}``.
"""

from __future__ import annotations

from typing import Any

from aiohttp import web

from esclusa.simulators.base import Simulator

TOKEN = "page-token"  # noqa: S105 - only of the simulator


class GraphApiSimulator(Simulator):
    """Objects with the links that they have now."""

    def reset(self) -> None:
        super().reset()
        self.token = TOKEN
        self.objects: dict[str, dict[str, Any]] = {}

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/_media", self._add),
            web.post("/_token", self._set_token),
            web.get("/{version}/{id}", self._get),
        ]

    def add(self, id: str, link: str | None = None, links: list[str] | None = None) -> None:
        """Add an object from the same process."""
        self.objects[id] = {"link": link, "links": links}

    async def _add(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.add(body["id"], body.get("link"), body.get("links"))
        return web.json_response({"success": True})

    async def _set_token(self, request: web.Request) -> web.Response:
        self.token = (await request.json())["token"]
        return web.json_response({"success": True})

    async def _get(self, request: web.Request) -> web.Response:
        given = request.headers.get("Authorization", "").partition(" ")[2]
        if (request.query.get("access_token") or given) != self.token:
            message = "Error validating access token: Session has expired."
            return _error(400, 190, message, "OAuthException", error_subcode=463)
        id, fields = request.match_info["id"], request.query.get("fields", "")
        found = self.objects.get(id)
        if found is None:
            message = (
                f"Unsupported get request. Object with ID '{id}' does not exist, cannot be loaded"
                " due to missing permissions, or does not support this operation"
            )
            return _error(400, 100, message, "GraphMethodException", error_subcode=33)
        return web.json_response({"id": id} | _answer(found, fields))


def _answer(found: dict[str, Any], fields: str) -> dict[str, Any]:
    link, links = found["link"], found["links"] or []
    if fields == "images" and link:
        sizes = ((1080, ""), (320, "&small=1"))
        return {
            "images": [{"height": n, "width": n, "source": link + more} for n, more in sizes[::-1]]
        }
    if fields == "source" and link:
        return {"source": link}
    if "attachments" not in fields or not (link or links):
        return {}
    media = [{"media": {"image": {"height": 720, "width": 720, "src": each}}} for each in links]
    first = links[0] if links else link
    attached: dict[str, Any] = {"media": {"image": {"height": 720, "width": 720, "src": first}}}
    if len(links) > 1:
        attached["subattachments"] = {"data": media}
    return {"attachments": {"data": [attached]}, "full_picture": first}


def _error(status: int, code: int, message: str, type: str, **more: Any) -> web.Response:
    error = {"message": message, "type": type, "code": code, "fbtrace_id": "AbCdEfGhIjK", **more}
    return web.json_response({"error": error}, status=status)
