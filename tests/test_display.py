"""Display of models, proximities and histories in notebooks and terminals."""

import html.parser

import numpy as np
import pytest
import scipy.sparse

import affect_xp as ax
from affect_xp import display
from affect_xp.tracking.events import Event
from affect_xp.tracking.history import History, Record

HOSTILE = "</td><script>alert('α')</script>&amp;"
W = np.kron(np.eye(2), np.ones((3, 3)))


class Page(html.parser.HTMLParser):
    """Collects the tags and the text of a page; fails if tags do not match."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.open = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        if self.open[-1] != "style":
            self.texts.append(text)


def history(n_steps, **changes):
    birth, going = Event("birth", (), (0,), 0, 0, 3), Event("continuation", (0,), (0,), 3, 3, 3)
    fields = {"events": (birth, birth, going), "n": 1234, "k": 2, "alpha": 0.25, **changes}
    records = [
        Record(**{"time": t, "alphas": (0.25,), "labels": np.zeros(3, int), "ids": range(3), **fields})
        for t in range(n_steps)
    ]
    return History(tuple(records))


def test_model_that_is_not_fitted():
    page = Page(ax.Affect(ax.KMeans(2), n_iter=5)._repr_html_())
    assert page.texts[:2] == ["Affect", "not fitted"]
    names = ax.Affect(ax.KMeans(2)).get_params(deep=False)
    assert [text for text in page.texts if text in names] == list(names)
    assert page.texts[page.texts.index("n_iter") + 1] == "5"


def test_parameters_that_were_set_stand_out():
    text = ax.Affect(ax.KMeans(2), n_iter=5)._repr_html_()
    assert '<td class="value">5</td>' in text and '<td class="value usual">&#x27;estimate&#x27;</td>' in text


@pytest.mark.parametrize("make", [ax.Affect, ax.Static])
def test_model_that_is_fitted(make):
    model = make(ax.KMeans(2), random_state=0).fit([W, W])
    summary = f"2 steps; at the last 6 objects in 2 clusters, α = {model.history_[-1].alpha:.3g}"
    assert Page(model._repr_html_()).texts[1] == summary


def test_parameters_are_escaped_and_cut():
    model = ax.Affect(ax.KMeans(2), init=HOSTILE, alpha=list(range(1000)))
    page = Page(model._repr_html_())
    assert "script" not in page.tags and repr(HOSTILE) in page.texts
    assert len(max(page.texts, key=len)) == display.LONGEST


def test_history_in_a_terminal():
    assert repr(history(0)) == "History(0 steps)"
    assert repr(history(1)).splitlines() == [
        "History(1 step)",
        "time     n  k      α  events",
        "0     1234  2  0.250  2 × birth",
    ]
    lines = repr(history(30)).splitlines()
    assert len(lines) == 2 + 5 + 1 + 5
    assert [line.split()[0] for line in lines[2:]] == [
        "0",
        "1",
        "2",
        "3",
        "4",
        "…",
        "25",
        "26",
        "27",
        "28",
        "29",
    ]


def test_history_in_a_notebook():
    page = Page(history(3)._repr_html_())
    assert page.texts == ["History", "3 steps", "time", "n", "k", "α", "events"] + [
        text for t in range(3) for text in (str(t), "1234", "2", "0.250", "2 × birth")
    ]
    assert Page(history(21)._repr_html_()).tags.count("tr") == 1 + 10 + 1 + 10
    assert Page(history(20)._repr_html_()).tags.count("tr") == 1 + 20
    assert Page(history(0)._repr_html_()).texts == ["History", "0 steps"]


def test_times_are_escaped():
    page = Page(history(1, time=HOSTILE)._repr_html_())
    assert "script" not in page.tags and HOSTILE in page.texts


def test_proximities(xp):
    # Six by six numbers; for `Factored`, two columns and their weights.
    dense = ax.as_proximity(xp.array(W))
    page = Page(dense._repr_html_())
    facts = dict(zip(page.texts[2::2], page.texts[3::2], strict=True))
    assert page.texts[:2] == [type(dense).__name__, "proximities of 6 objects"]
    assert "float64" in facts["dtype"] and facts["library"] == type(dense.like).__module__.split(".")[0]
    assert facts["storage"] == "288 bytes"


def test_storage_of_representations():
    def storage(proximity):
        texts = Page(proximity._repr_html_()).texts
        return texts[texts.index("storage") + 1]

    sparse = scipy.sparse.csr_array(W)
    n_bytes = sparse.data.nbytes + sparse.indices.nbytes + sparse.indptr.nbytes
    assert storage(ax.Sparse(sparse)) == display.in_bytes(n_bytes)
    assert storage(ax.Factored.from_features(np.ones((6, 2)))) == "112 bytes"
    assert storage(ax.Dense(np.ones((500, 500)))) == "2 MB"


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0, "0 bytes"), (999, "999 bytes"), (1500, "1.5 kB"), (25 * 10**8, "2.5 GB"), (10**16, "10,000 TB")],
)
def test_bytes(number, expected):
    assert display.in_bytes(number) == expected
