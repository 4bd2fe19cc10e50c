"""How docstrings and comments of the package become the Python reference: an extension of Griffe.

- Fields of a class with a comment (which is also the help of a flag) or a line below become its section `Attributes`.
- `Example:` is the heading of doctests; lines such as `Observation: ...` of an environment are a list.
"""

import re
from typing import Any

import griffe

SPACES = re.compile(r"^(Observations?|Actions?|Rewards?|Termination|Infos?|State): ", re.MULTILINE)
COMMENT = re.compile(r"#:? (?!noqa|type:|fmt:)(.*)")


class Docstrings(griffe.Extension):
    """Adapts what the handler of mkdocstrings shows."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Examples under the heading that is known, and lists as lists."""
        if obj.docstring:
            text = re.sub(r"^( *)Example:$", r"\1Examples:", obj.docstring.value, flags=re.MULTILINE)
            obj.docstring.value = SPACES.sub(r"- \1: ", text)

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """One table of fields instead of a heading for each."""
        said = cls.docstring.value if cls.docstring else ""
        fields: dict[str, str] = {}
        for name, member in cls.members.items():
            if member.is_attribute and not member.is_private and (text := _described(member)):
                fields[name] = text
                member.docstring = None  # shown in the table
        if fields and "Attributes:" not in said:
            rows = "".join(f"\n    {name}: {text}" for name, text in fields.items())
            cls.docstring = griffe.Docstring(f"{said}\n\nAttributes:{rows}", lineno=cls.lineno, parent=cls)


def _described(field: griffe.Attribute) -> str:
    """The line below a field, the comment behind it, or the comments above it."""
    if "property" in field.labels or field.lineno is None:
        return ""
    if field.docstring:
        return " ".join(field.docstring.value.split())
    lines = field.lines_collection[field.filepath]
    if behind := COMMENT.search(lines[(field.endlineno or field.lineno) - 1]):
        return behind[1]
    above: list[str] = []
    for line in reversed(lines[: field.lineno - 1]):
        if not (comment := COMMENT.fullmatch(line.strip())):
            break
        above.insert(0, comment[1])
    return " ".join(above)
