"""Files of ours: scripts, styles, images. Open to everybody; nothing in them is anybody's."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, Response

from isthmus.console.rendering import FOLDER, HEADERS, assets_version
from isthmus.console.visits import Visit

_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".txt": "text/plain"}
_FILES = {
    str(path.relative_to(FOLDER / "static")): path
    for path in (FOLDER / "static").rglob("*")
    if path.suffix in _TYPES and path.is_file()
}


async def static(visit: Visit) -> Response:
    """One of the files that were there at the start, so that no path can lead elsewhere."""
    path = _FILES.get(visit.request.path_params["path"])
    if path is None:
        raise HTTPException(404, "there is no such file")
    mine = visit.request.path_params["version"] == assets_version()
    kept = "public, max-age=31536000, immutable" if mine else "no-cache"
    return FileResponse(path, headers={**HEADERS, "Cache-Control": kept}, media_type=_TYPES[path.suffix])


PAGES = (("GET", "/static/{version}/{path:path}", static),)
