"""What is wrong with a value, in the words of whoever wrote it and not of the model. Pure.

Every type of error that the models can produce has a sentence here; one that has none keeps pydantic's own.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
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


def sentence(kind: str, value: Any, context: Mapping[str, Any], fields: Sequence[str] = ()) -> str | None:
    """The sentence for one type of error; `fields` are those of the map that was expected."""
    make = _SENTENCES.get(kind)
    return make(value, context, fields) if make else None


def _list(value: Any, context: Mapping[str, Any], fields: Sequence[str]) -> str:
    del context, fields
    if isinstance(value, str) and value.strip() and len(value) <= _SHOWN:
        try:
            words = shlex.split(value)
        except ValueError:
            words = value.split()
        return f"must be a list, not the text {shown(value)}; write [{', '.join(words)}]"
    return f"must be a list, not {shown(value)}; write [A, B]"


def _map(value: Any, context: Mapping[str, Any], fields: Sequence[str]) -> str:
    del context
    if not fields:
        return f"must be a map of names and values, not {shown(value)}"
    plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    example = f"; write {{{fields[0]}: {value if len(str(value)) <= _SHOWN else '…'}}}" if plain else ""
    return f"must be a map with the fields {', '.join(fields)}, not {shown(value)}{example}"


def _must(what: str) -> Callable[[Any, Mapping[str, Any], Sequence[str]], str]:
    return lambda value, context, fields: f"must be {what}, not {shown(value)}"


def _bound(form: str) -> Callable[[Any, Mapping[str, Any], Sequence[str]], str]:
    return lambda value, context, fields: f"must be {form.format(**context)}, not {shown(value)}"


def _choice(value: Any, context: Mapping[str, Any], fields: Sequence[str]) -> str:
    del fields
    return f"must be {str(context.get('expected', '')).replace(chr(39), '')}, not {shown(value)}"


def _length(value: Any, context: Mapping[str, Any], fields: Sequence[str]) -> str:
    del value, fields
    if "max_length" in context:
        return f"has {context.get('actual_length', 'too many')} entries; {context['max_length']} are allowed"
    return f"needs at least {context.get('min_length', 1)} entries"


def _text_length(value: Any, context: Mapping[str, Any], fields: Sequence[str]) -> str:
    del fields
    if "max_length" in context:
        return f"has {len(str(value)):,} characters; {context['max_length']:,} are allowed"
    return f"needs at least {context.get('min_length', 1)} characters"


_WHOLE, _TEXT, _YES = _must("a whole number"), _must("a text"), _must("true or false")
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
    "string_type": _TEXT,
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
