"""Finds what a reader of an SVG can't see: boxes of what is drawn, as a browser places it."""

import itertools
import re
from collections.abc import Iterator
from xml.etree import ElementTree

import numpy as np

_SVG = "{http://www.w3.org/2000/svg}"
_LINK = "{http://www.w3.org/1999/xlink}href"
_NUMBER = re.compile(r"-?\d+\.?\d*(?:e-?\d+)?")
_SLACK = 1.0  # points by which boxes of round letters, and of thick lines, may overlap


def faults(svg: str) -> list[str]:
    """A sentence for each thing that ends outside the picture, for each pair of labels of which one
    covers the other, and for a missing background."""
    root = ElementTree.fromstring(svg)
    left, top, width, height = map(float, root.attrib["viewBox"].split())
    canvas = np.array([[left, top], [left + width, top + height]])
    things = list(_boxes(root, {e.get("id"): e for e in root.iter() if e.get("id")}, np.eye(3)))
    found = []
    for name, box in things:
        if (box[0] < canvas[0] - _SLACK).any() or (box[1] > canvas[1] + _SLACK).any():
            found.append(f"{name} ends outside the picture: {box.round().tolist()}")
    for (one, a), (other, b) in itertools.combinations(
        (each for each in things if each[0].startswith("label")), 2
    ):
        if (np.minimum(a[1], b[1]) - np.maximum(a[0], b[0]) > _SLACK).all():
            found.append(f"{one} and {other} cover each other")
    first = next(e for e in root.iter() if e.tag in (f"{_SVG}path", f"{_SVG}rect"))
    if "#fff" not in first.get("style", "") + first.get("fill", ""):
        found.append("no background of its own: dark pages swallow its words")
    return found


def _boxes(element, named: dict, matrix) -> Iterator[tuple[str, np.ndarray]]:
    """Names and corners of all labels, and of other things that no axes clip."""
    if element.tag in (f"{_SVG}defs", f"{_SVG}metadata") or element.get("clip-path"):
        return
    name = element.get("id", "")
    matrix = matrix @ _transform(element.get("transform", ""))
    if element.tag == f"{_SVG}text":
        yield f"label '{element.text}'", _corners(_letters(element), matrix)
    elif name.startswith("text_"):
        if points := list(_points(element, named, matrix)):
            ends = np.concatenate(points)
            yield f"label {name}", np.array([ends.min(0), ends.max(0)])
    elif element.tag in (f"{_SVG}path", f"{_SVG}use"):
        for points in _points(element, named, matrix):
            yield "a line", np.array([points.min(0), points.max(0)])
    else:
        for child in element:
            yield from _boxes(child, named, matrix)


def _points(element, named: dict, matrix) -> Iterator[np.ndarray]:
    """Of all paths in an element whose own transform the matrix has already."""
    if element.tag == f"{_SVG}path":
        numbers: list[float] = []
        for kind, inside in re.findall("([A-Zz])([^A-Zz]*)", element.get("d", "")):
            own = [float(n) for n in _NUMBER.findall(inside)]
            numbers += {"H": [*own, *numbers[-1:]], "V": [*numbers[-2:-1], *own]}.get(kind, own)
        if numbers:
            yield np.array(numbers).reshape(-1, 2) @ matrix[:2, :2].T + matrix[:2, 2]
    elif element.tag == f"{_SVG}use":
        at = np.eye(3)
        at[:2, 2] = float(element.get("x", 0)), float(element.get("y", 0))
        drawn = named[element.attrib[_LINK].removeprefix("#")]
        yield from _points(drawn, named, matrix @ at @ _transform(drawn.get("transform", "")))
    elif element.tag != f"{_SVG}defs":
        for child in element:
            yield from _points(child, named, matrix @ _transform(child.get("transform", "")))


def _transform(words: str) -> np.ndarray:
    """As a matrix."""
    whole = np.eye(3)
    for kind, inside in re.findall(r"(\w+)\(([^)]*)\)", words):
        numbers = [float(n) for n in _NUMBER.findall(inside)]
        own = np.eye(3)
        if kind == "translate":
            own[:2, 2] = numbers[0], numbers[1] if len(numbers) > 1 else 0
        elif kind == "scale":
            own[0, 0], own[1, 1] = numbers[0], numbers[-1]
        else:
            assert kind == "rotate", kind
            turn = np.radians(numbers[0])
            own[:2, :2] = [[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]]
        whole = whole @ own
    return whole


def _letters(text) -> np.ndarray:
    """The box of a text whose letters the reader's font draws: about 0.6 of its size each."""
    size = float(text.get("font-size", 12))
    width = 0.6 * size * len(text.text)
    start = {"middle": -width / 2, "end": -width}.get(text.get("text-anchor"), 0.0)
    x, y = float(text.get("x", 0)) + start, float(text.get("y", 0))
    return np.array([[x, y - 0.8 * size], [x + width, y + 0.2 * size]])


def _corners(box: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    ends = np.array(list(itertools.product(*box.T))) @ matrix[:2, :2].T + matrix[:2, 2]
    return np.array([ends.min(0), ends.max(0)])
