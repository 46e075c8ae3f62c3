"""Pages: one environment for all templates; a page is self-contained, and text is text."""

from __future__ import annotations

import re
from importlib import resources
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from markupsafe import Markup


def render(template: str, svg: str, label: str, **values: Any) -> str:
    """The page that `template` makes of `values`, with the drawing `svg`, said as `label`."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FunctionLoader(_source), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template(template).render(
        style=Markup(_source("style.css")), svg=inlined(svg, label), **values
    )


def _source(name: str) -> str:
    return (resources.files("dpsim.report") / name).read_text(encoding="utf-8")


def inlined(svg: str, label: str) -> Markup:
    """`svg`, as matplotlib writes it, for the inside of a page, with `label` for screen readers."""
    from markupsafe import Markup, escape

    body = svg[svg.index("<svg") :]
    body = re.sub(r"<!--.*?-->", "", body, flags=re.DOTALL)
    return Markup(body.replace("<svg", f'<svg role="img" aria-label="{escape(label)}"', 1))
