"""Tables of a history: moves, events, and the stability of clusters."""

import math

import numpy as np
import pytest

import affect_xp as ax
from affect_xp.exceptions import InputError
from affect_xp.tracking.events import Event
from affect_xp.tracking.history import History, Record

pytest.importorskip("pandas")


def record(time, ids, labels, moved=None, events=()):
    labels = np.array(labels)
    moved = None if moved is None else np.array(moved)
    return Record(time, len(labels), len(set(labels)), 0.5, (0.5,), labels, list(ids), events, moved=moved)


def test_objects_in_another_cluster_have_moved():
    history = History((record(0, "abc", [0, 0, 1]), record(1, "cbxa", [1, 1, 1, 0])))
    moves = history.moves_to_frame()
    assert moves[["time", "id", "from", "to"]].values.tolist() == [[1, "b", 0, 1]]
    assert math.isnan(moves["probability"][0])


def test_where_probabilities_are_known_they_decide():
    history = History(
        (record(0, "abcd", [0, 0, 1, 1]), record(1, "abcd", [1, 1, 0, 1], [0.6, 0.4, 0.9, 0.8]))
    )
    moves = history.moves_to_frame()
    assert moves.values.tolist() == [[1, "c", 1, 0, 0.9], [1, "d", 1, 1, 0.8], [1, "a", 0, 1, 0.6]]
    assert history.moves_to_frame(0.85)["id"].tolist() == ["c"]
    with pytest.raises(InputError, match=r"min_probability must be .*2"):
        history.moves_to_frame(2)


def test_events_are_rows():
    split = Event("split", (0,), (0, 2), 18, 20, 19)
    move = Event("move", (0,), (2,), 1, 2, 1, ("b",), (0.95,))
    made = record(5, "ab", [0, 2], events=(split, move))
    events = History((record(0, "ab", [0, 0]), made)).events_to_frame()
    assert events.values.tolist() == [
        [5, "split", (0,), (0, 2), 18, 20, 19, (), ()],
        [5, "move", (0,), (2,), 1, 2, 1, ("b",), (0.95,)],
    ]


def test_stability_is_the_share_of_members_kept():
    history = History((record(0, "abcd", [0, 0, 0, 1]), record(1, "abxd", [0, 1, 0, 1])))
    rows = history.stability().values.tolist()
    assert [row[:3] for row in rows[:2]] == [[0, 0, 3], [0, 1, 1]]
    assert all(math.isnan(row[3]) for row in rows[:2])
    assert rows[2:] == [[1, 0, 2, 0.5], [1, 1, 2, 1.0]]  # c left, b went from 0 to 1


def test_tables_of_nothing_have_their_columns():
    assert list(History().moves_to_frame()) == ["time", "id", "from", "to", "probability"]
    assert list(History().stability()) == ["time", "cluster", "size", "kept"]
    assert "kind" in History().events_to_frame()


def test_probabilities_are_saved(tmp_path):
    w = np.kron(np.eye(2), np.ones((4, 4)))
    model = ax.Affect(ax.KMeans(2), random_state=0).fit([w, w])
    moved = np.linspace(0, 1, 8)
    model.history_ = History((model.history_[0], record(1, range(8), [0] * 8, moved)))
    model.save(tmp_path / "model.npz")
    found = ax.load(tmp_path / "model.npz").history_
    assert found[0].moved is None
    np.testing.assert_array_equal(found[1].moved, moved)
