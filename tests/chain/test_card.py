"""Cards of models: totals, the document, and what is refused."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import hetsched as hs
from hetsched.arrays import Columns
from hetsched.chain import PARTS
from hetsched.chain.card import COUNTS, chain_items, tensor_columns
from hetsched.documents import KINDS, decode, encode
from hetsched.errors import InvalidProblem

TABLE = PARTS.index("table")
words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
counts = st.integers(0, 2**40)
amounts = st.floats(0, 1e15)


@st.composite
def cards(draw):
    """Draw cards of one to four blocks."""
    blocks = draw(
        st.lists(st.fixed_dictionaries({column: counts for column in COUNTS if column != "experts_used"}), min_size=1, max_size=4)
    )
    for block in blocks:
        block["experts_used"] = draw(st.integers(0, block["experts"]))
        block["window"] = draw(st.one_of(st.just(np.inf), st.floats(1, 1e9)))
    items = chain_items(blocks, draw(st.integers(1, 2**30)))
    shape = (len(items), len(PARTS))
    parameters, weight_bytes = (draw(arrays.arrays(np.float64, shape, elements=amounts)) for _ in range(2))
    tied = draw(st.booleans())
    if tied:
        for table in (parameters, weight_bytes):
            table[-1, TABLE] = min(table[-1, TABLE], table[0, TABLE])
    rows = draw(
        st.lists(
            st.tuples(words, st.sampled_from(["", *items.name]), st.sampled_from(PARTS), counts), max_size=3, unique_by=lambda row: row[0]
        )
    )
    return hs.ModelCard(
        draw(words),
        draw(words),
        draw(st.integers(1, 2**30)),
        draw(st.integers(1, 2**30)),
        items,
        parameters,
        weight_bytes,
        context_length=draw(st.none() | st.integers(1, 2**30)),
        modules=[draw(st.lists(words, max_size=2)) for _ in range(len(items))],
        tied=tied,
        exact=draw(st.booleans()),
        decodes=draw(st.booleans()),
        source=draw(st.text(st.characters(codec="utf-8"), max_size=5)),
        token_flops=draw(st.none() | arrays.arrays(np.float64, len(items), elements=amounts)),
        tensors=draw(st.none() | st.just(tensor_columns(rows))),
    )


@given(cards())
def test_a_document_is_restored_to_the_bit(card):
    again = decode(encode(card), KINDS)
    assert again == card
    assert encode(again) == encode(card)
    for table, other in ((again.parameters, card.parameters), (again.weight_bytes, card.weight_bytes)):
        assert table.tobytes() == other.tobytes()
    assert pickle.loads(pickle.dumps(card)) == card


@given(cards())
def test_totals_count_a_tied_table_once(card):
    tied = card.weight_bytes[-1, TABLE] if card.tied else 0
    assert card.total_bytes == pytest.approx(card.weights.sum() - tied, rel=1e-12)
    assert card.n_parameters == pytest.approx(card.parameters.sum() - (card.parameters[-1, TABLE] if card.tied else 0), abs=1)
    assert card.n_items == card.n_blocks + 2 == len(card.items) == len(card.modules) == len(card.weights)
    assert card.n_logits == (card.vocabulary if card.parameters[-1, TABLE] else 0)


def small(**changes):
    """Return a card of two blocks with some arguments replaced."""
    arguments = {
        "name": "m",
        "family": "f",
        "width": 4,
        "vocabulary": 10,
        "items": chain_items([{"heads": 2, "experts": 4, "experts_used": 2}] * 2, 4),
        "parameters": np.ones((4, len(PARTS))),
        "weight_bytes": np.full((4, len(PARTS)), 2.0),
        **changes,
    }
    return hs.ModelCard(**arguments)


def test_it_says_what_it_is_about(tmp_path):
    card = small(parameters=np.full((4, len(PARTS)), 25e7), tied=True)
    assert repr(card) == "<ModelCard 'm' of f: 2 blocks, 6.75 B parameters, 5.4e-08 GB>"
    assert card.items.name.tolist() == ["embed", "block 0", "block 1", "head"]
    assert card.items.window.tolist() == [np.inf] * 4
    card.write(tmp_path / "card.json")
    assert hs.read(tmp_path / "card.json") == card
    assert '"format":"hetsched-model"' in (tmp_path / "card.json").read_text()
    with pytest.raises(AttributeError, match="immutable"):
        card.width = 5
    with pytest.raises(ValueError, match="read-only"):
        card.parameters[0, 0] = 5


def with_column(column, value, row=1):
    """Return items with one value replaced."""
    items = small().items
    values = items[column].copy()
    values[row] = value
    return items.replace(**{column: values})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": ""}, "name of a model is ''; it must be non-empty Unicode text"),
        ({"family": "\ud800"}, "family of a model is '.*'; it must be non-empty"),
        ({"source": "\ud800"}, "source of a model is '.*'; it must be Unicode text"),
        ({"width": 0}, "width is 0; it must be a whole number, at least 1"),
        ({"vocabulary": -1}, "vocabulary is -1; it must be a whole number, at least 1"),
        ({"context_length": 0}, "context_length is 0; it must be a whole number, at least 1"),
        ({"items": Columns(name=["embed"])}, "items has no column 'kind'; it must have name, kind, heads"),
        ({"items": small().items.replace(other=[0] * 4)}, "items has an unknown column 'other'; it must have name"),
        ({"items": with_column("kind", "head")}, r"the kinds of the items are \['embed', 'head', 'block', 'head'\]; they must be 'embed'"),
        ({"items": with_column("name", "block 1")}, "duplicate item names: 'block 1'"),
        ({"items": with_column("heads", -2)}, "heads of item 'block 0' is -2; it must be at least 0"),
        ({"items": small().items.replace(heads=[0.5] * 4)}, "heads of items is .*; it must be an array of whole numbers"),
        ({"items": with_column("window", 0)}, "window of item 'block 0' is 0.0; it must be a number above 0, or inf for all"),
        ({"items": with_column("window", np.nan)}, "window of item 'block 0' is nan"),
        ({"items": with_column("experts_used", 5)}, "item 'block 0' uses 5 of 4 experts"),
        ({"parameters": np.ones((3, 7))}, r"parameters has shape \[3, 7\]; it must be \[4, 7\]"),
        ({"weight_bytes": np.full((4, 7), np.inf)}, "weight_bytes of attention of item 'embed' is inf; it must be a number, at least 0"),
        ({"parameters": -np.eye(4, 7)}, "parameters of attention of item 'embed' is -1.0"),
        ({"modules": [["a"]]}, "modules has 1 row and items 4; give the prefixes of each item"),
        ({"modules": [["a"], [""], [], []]}, "the prefix '' of a module is not non-empty"),
        (
            {"tied": True, "parameters": np.eye(4, 7)[::-1] * 0 + (np.arange(4) == 3)[:, None]},
            "parameters of the tied head's table are 1, and of",
        ),
        ({"tensors": Columns(name=["a"])}, "tensors has the columns name; it must have name, item, part and bytes"),
        ({"tensors": tensor_columns([("a", "tail", "norm", 1)])}, "item of tensor 'a' is 'tail'; it must be the name of an item"),
        ({"tensors": tensor_columns([("a", "head", "gate", 1)])}, "part of tensor 'a' is 'gate'; choose one of attention"),
        ({"tensors": tensor_columns([("a", "head", "norm", -1)])}, "bytes of tensor 'a' are -1; they must be at least 0"),
        ({"tensors": tensor_columns([("a", "", "norm", 1)] * 2)}, "duplicate tensor names: 'a'"),
    ],
)
def test_each_rule_has_a_message(changes, message):
    with pytest.raises(InvalidProblem, match=message):
        small(**changes)


def test_a_document_with_bad_numbers_says_where():
    text = encode(small()).decode()
    with pytest.raises(InvalidProblem, match=r"items\[1\].heads"):
        decode(text.replace('"heads":2', '"heads":-2', 1), KINDS)
    with pytest.raises(InvalidProblem, match="token_flops are given for some items only; give those of all, or of none"):
        decode(text.replace('"heads":2', '"token_flops":2,"heads":2', 1), KINDS)
    with pytest.raises(InvalidProblem, match="unknown field `hands`"):
        decode(text.replace('"heads":2', '"hands":2', 1), KINDS)
    with pytest.raises(InvalidProblem, match="kinds of the items"):
        decode(text.replace('"kind":"block"', '"kind":"head"', 1), KINDS)
