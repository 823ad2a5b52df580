"""What is wrong with a value, in the words of whoever wrote it and not of the model. Pure.

Every type of error that the models can produce has a sentence here; one that has none keeps pydantic's own.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

_SHOWN = 60


def shown(value: Any) -> str:
    """A value as its author knows it, and never more than a line of it."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return repr(value if len(value) <= _SHOWN else value[:_SHOWN] + "…")
    if isinstance(value, Mapping):
        return "a map"
    if isinstance(value, Sequence):
        return "a list"
    return repr(value)[:_SHOWN]


def sentence(
    kind: str, value: Any, context: Mapping[str, Any], fields: Sequence[str] = (), example: str = ""
) -> str | None:
    """The sentence for one type of error.

    `fields` are those of the map that was expected, and `example` is such a map, made of what was written.
    """
    make = _SENTENCES.get(kind)
    return make(value, {**context, "example": example}, fields) if make else None


def likely(fields: Sequence[str], value: Any) -> Iterator[dict[str, Any]]:
    """What may have been meant by a value in place of a map with these fields, the likeliest first."""
    if value is True:
        yield {}
    elif isinstance(value, Mapping) and value and len(fields) > 1:
        name, inner = next(iter(value.items()))
        yield {fields[0]: name, fields[1]: inner}
    elif isinstance(value, str | int | float) and not isinstance(value, bool) and fields:
        yield {fields[0]: value}
        yield {fields[0]: [value]}
        name, equals, rest = str(value).partition("=")
        if equals and len(fields) > 1:
            yield {fields[0]: name, fields[1]: rest}


def flow(value: Any) -> str:
    """A small value as YAML in one line; empty if it would be long."""
    if isinstance(value, Mapping):
        text = f"{{{', '.join(f'{key}: {flow(inner)}' for key, inner in list(value.items())[:4])}}}"
    elif isinstance(value, list):
        text = f"[{', '.join(flow(inner) for inner in value[:8])}]"
    else:
        text = shown(value) if isinstance(value, bool) or value is None else str(value)[: _SHOWN + 1]
    return text if len(text) <= _SHOWN else ""


def _list(value: Any, context: Mapping[str, Any], fields: Sequence[str]) -> str:
    if fields:
        example = f"; write [{context['example']}]" if context.get("example") else ""
        return f"must be a list of maps with the fields {', '.join(fields)}, not {shown(value)}{example}"
    if isinstance(value, str) and value.strip() and len(value) <= _SHOWN:
        try:
            words = shlex.split(value)
        except ValueError:
            words = value.split()
        return f"must be a list, not the text {shown(value)}; write [{', '.join(words)}]"
    return f"must be a list, not {shown(value)}; write [A, B]"


def _map(value: Any, context: Mapping[str, Any], fields: Sequence[str]) -> str:
    if not fields:
        return f"must be a map of names and values, not {shown(value)}"
    example = f"; write {context['example']}" if context.get("example") else ""
    return f"must be a map with the fields {', '.join(fields)}, not {shown(value)}{example}"


def _must(what: str) -> Callable[[Any, Mapping[str, Any], Sequence[str]], str]:
    return lambda value, context, fields: f"must be {what}, not {shown(value)}"


def _bound(form: str) -> Callable[[Any, Mapping[str, Any], Sequence[str]], str]:
    def make(value: Any, context: Mapping[str, Any], fields: Sequence[str]) -> str:
        del fields
        plain = {k: int(v) if isinstance(v, float) and v.is_integer() else v for k, v in context.items()}
        return f"must be {form.format(**plain)}, not {shown(value)}"

    return make


def _choice(value: Any, context: Mapping[str, Any], fields: Sequence[str]) -> str:
    del fields
    return f"must be {str(context.get('expected', '')).replace(chr(39), '')}, not {shown(value)}"


def _length(value: Any, context: Mapping[str, Any], fields: Sequence[str]) -> str:
    del value, fields
    if "max_length" in context:
        return f"has {context.get('actual_length', 'too many')} entries; {context['max_length']} are allowed"
    least = context.get("min_length", 1)
    return "must not be empty" if least == 1 else f"needs at least {least} entries"


def _text_length(value: Any, context: Mapping[str, Any], fields: Sequence[str]) -> str:
    del fields
    if "max_length" in context:
        return f"has {len(str(value)):,} characters; {context['max_length']:,} are allowed"
    least = context.get("min_length", 1)
    return "must not be empty" if least == 1 else f"needs at least {least} characters"


def _text(value: Any, context: Mapping[str, Any], fields: Sequence[str]) -> str:
    del context, fields
    quoted = isinstance(value, bool | int | float)
    return f"must be a text, not {shown(value)}" + (f"; write it in quotes: '{shown(value)}'" if quoted else "")


_WHOLE, _YES = _must("a whole number"), _must("true or false")
_SENTENCES: Mapping[str, Callable[[Any, Mapping[str, Any], Sequence[str]], str]] = {
    "list_type": _list,
    "tuple_type": _list,
    "set_type": _list,
    "model_type": _map,
    "model_attributes_type": _map,
    "dict_type": _map,
    "mapping_type": _map,
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_from_float": _WHOLE,
    "int_parsing_size": _WHOLE,
    "float_type": _must("a number"),
    "float_parsing": _must("a number"),
    "finite_number": _must("a finite number"),
    "string_type": _text,
    "bool_type": _YES,
    "bool_parsing": _YES,
    "greater_than": _bound("more than {gt}"),
    "greater_than_equal": _bound("at least {ge}"),
    "less_than": _bound("less than {lt}"),
    "less_than_equal": _bound("at most {le}"),
    "enum": _choice,
    "literal_error": _choice,
    "too_long": _length,
    "too_short": _length,
    "string_too_long": _text_length,
    "string_too_short": _text_length,
}
