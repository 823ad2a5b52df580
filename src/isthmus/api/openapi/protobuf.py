"""An OpenAPI 2 document as protobuf, in the messages of gnostic's `OpenAPIv2.proto`, which older kubectl reads.

Each message is a table from the words of the JSON document to a field number and how its value is written. Only
what our documents say has an entry; a word without one is an error, so that nothing is lost in silence. Words that
begin with `x-` are written as named values with YAML text, for which JSON will do.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

import orjson

Writer = Callable[[int, Any], bytes]
Message = Mapping[str, tuple[int, Writer]]

CONTENT_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""As Kubernetes answers. Clients ask with an `@`, which is not a legal media type."""


def encode(document: Mapping[str, Any]) -> bytes:
    """The document's bytes."""
    return _fields(_DOCUMENT, document)


def _varint(value: int) -> bytes:
    out = bytearray()
    value &= 2**64 - 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _block(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _text(number: int, value: Any) -> bytes:
    return _block(number, str(value).encode())


def _texts(number: int, values: Any) -> bytes:
    return b"".join(_text(number, value) for value in values)


def _number(number: int, value: Any) -> bytes:
    return _varint(number << 3) + _varint(int(value))


def _double(number: int, value: Any) -> bytes:
    return _varint(number << 3 | 1) + struct.pack("<d", value)


def _any(number: int, value: Any) -> bytes:
    return _block(number, _text(2, orjson.dumps(value).decode()))


def _anys(number: int, values: Any) -> bytes:
    return b"".join(_any(number, value) for value in values)


def _fields(message: Message, value: Mapping[str, Any]) -> bytes:
    extension = message.get("x-")
    out = bytearray()
    for word, inner in value.items():
        if word.startswith("x-") and extension is not None:
            out += _block(extension[0], _text(1, word) + _any(2, inner))
        else:
            number, write = message[word]
            out += write(number, inner)
    return bytes(out)


def _message(message: Callable[[], Message]) -> Writer:
    return lambda number, value: _block(number, _fields(message(), value))


def _named(write: Writer, inner: int = 1) -> Writer:
    """A map: a message of repeated pairs of name and value."""

    def pairs(number: int, value: Any) -> bytes:
        found = (_block(inner, _text(1, name) + write(2, item)) for name, item in value.items())
        return _block(number, b"".join(found))

    return pairs


def _schema(number: int, value: Any) -> bytes:
    return _block(number, _fields(_SCHEMA, value))


def _schema_or_truth(number: int, value: Any) -> bytes:
    return _block(number, _number(2, value) if isinstance(value, bool) else _schema(1, value))


def _parameters(number: int, values: Any) -> bytes:
    """Each wrapped as one of the choices of the message: a body, or in the query or path."""
    out = b""
    for value in values:
        if value["in"] == "body":
            chosen = _block(1, _fields(_BODY, value))
        else:
            part, message = (3, _QUERY) if value["in"] == "query" else (4, _PATH)
            chosen = _block(2, _block(part, _fields(message, value)))
        out += _block(number, _block(1, chosen))
    return out


def _response(number: int, value: Any) -> bytes:
    return _block(number, _block(1, _fields(_RESPONSE, value)))


def _security(number: int, value: Any) -> bytes:
    return _block(number, _block(2, _fields({"type": (1, _text), "name": (2, _text), "in": (3, _text)}, value)))


_EXTENSION: Writer = _any
_SCHEMA: Message = {
    "$ref": (1, _text),
    "format": (2, _text),
    "title": (3, _text),
    "description": (4, _text),
    "default": (5, _any),
    "multipleOf": (6, _double),
    "maximum": (7, _double),
    "exclusiveMaximum": (8, _number),
    "minimum": (9, _double),
    "exclusiveMinimum": (10, _number),
    "maxLength": (11, _number),
    "minLength": (12, _number),
    "pattern": (13, _text),
    "maxItems": (14, _number),
    "minItems": (15, _number),
    "required": (19, _texts),
    "enum": (20, _anys),
    "additionalProperties": (21, _schema_or_truth),
    "type": (22, lambda number, value: _block(number, _text(1, value))),
    "items": (23, lambda number, value: _block(number, _schema(1, value))),
    "properties": (25, _named(_schema)),
    "x-": (31, _EXTENSION),
}
_BODY: Message = {"name": (2, _text), "in": (3, _text), "required": (4, _number), "schema": (5, _schema)}
_PLACED: Message = {"required": (1, _number), "in": (2, _text), "description": (3, _text), "name": (4, _text)}
_QUERY: Message = {**_PLACED, "type": (6, _text), "enum": (21, _anys)}
_PATH: Message = {**_PLACED, "type": (5, _text), "enum": (20, _anys)}
_RESPONSE: Message = {
    "description": (1, _text),
    "schema": (2, lambda number, value: _block(number, _schema(1, value))),
}
_OPERATION: Message = {
    "operationId": (5, _text),
    "produces": (6, _texts),
    "consumes": (7, _texts),
    "parameters": (8, _parameters),
    "responses": (9, _named(_response)),
    "x-": (13, _EXTENSION),
}
_METHOD = _message(lambda: _OPERATION)
_PATH_ITEM: Message = {
    "get": (2, _METHOD),
    "put": (3, _METHOD),
    "post": (4, _METHOD),
    "delete": (5, _METHOD),
    "patch": (8, _METHOD),
}
_DOCUMENT: Message = {
    "swagger": (1, _text),
    "info": (2, _message(lambda: {"title": (1, _text), "version": (2, _text)})),
    "paths": (8, _named(_message(lambda: _PATH_ITEM), inner=2)),
    "definitions": (9, _named(_schema)),
    "securityDefinitions": (13, _named(_security)),
}
