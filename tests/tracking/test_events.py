"""Events between steps, and names that survive steps in which a cluster is missing."""

import itertools

import numpy as np
import pytest
import reference
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import affect_xp as ax
from affect_xp.tracking.events import (
    KINDS,
    Clusters,
    Dormant,
    Event,
    EventRules,
    _matched_with_dormant,
    follow,
    match_clusters,
    matching_weights,
    members_of,
    move_events,
    totals,
)


def groups_of(labels):
    """Return the sets of ids of the clusters, and their labels, from {id: label}; -1 is no cluster."""
    names = sorted(set(labels.values()) - {-1})
    return [frozenset(i for i, c in labels.items() if c == name) for name in names], names


def play(steps, rules=None):
    """Follow clusters through steps of {id: label}; return {label: name}, events and state of each."""
    state, before, told = Clusters.none(), [], []
    for labels in steps:
        now, local = groups_of(labels)
        table = np.array([[len(a & b) for b in now] for a in before], dtype=np.int64).reshape(
            len(before), len(now)
        )
        state, events = follow(
            state,
            table,
            np.array([len(group) for group in now], dtype=np.int64),
            members_before=lambda before=before: before,
            members=lambda now=now: now,
            rules=rules or EventRules(),
        )
        before = now
        told.append((dict(zip(local, state.names.tolist(), strict=True)), events, state))
    return told


def clusters(**sizes_or_ids):
    """Return {id: label} from clusters given by the ids of their objects."""
    return {i: label for label, ids in sizes_or_ids.items() for i in ids}


def kinds(events):
    return [(event.kind, event.before, event.after) for event in events]


def test_moves_are_listed_by_pairs_of_clusters():
    before = Clusters(np.array([4, 7]), np.array([3, 3]), fresh=8, t=0)
    now = Clusters(np.array([7, 4, 8]), np.array([2, 3, 1]), fresh=9, t=1)
    old, new = np.array([0, 0, 0, 1, 1, 1, -1]), np.array([0, 1, 0, 1, 1, 2, 0])
    moved = np.array([0.91, 0.95, 0.97, 0.0, 0.99, 0.92, 0.99])
    found = move_events(before, now, (old, new), moved, "abcdefg")
    assert found == (
        Event("move", (7,), (4,), 1, 3, 3, ("e",), (0.99,)),
        Event("move", (4,), (7,), 2, 3, 2, ("c", "a"), (0.97, 0.91)),
        Event("move", (7,), (8,), 1, 3, 1, ("f",), (0.92,)),
    )


class TestEvents:
    def test_the_first_step_is_births(self):
        ((names, events, _),) = play([clusters(a=range(3), b=range(3, 5))])
        assert names == {"a": 0, "b": 1}
        assert kinds(events) == [("birth", (), (0,)), ("birth", (), (1,))]

    def test_continuation_growth_and_shrink_at_the_threshold(self):
        first = clusters(a=range(10), b=range(10, 18), c=range(18, 28))
        second = clusters(a=range(8), b=[*range(10, 18), 8, 9], c=range(18, 27))
        _, (_, events, _) = play([first, second])
        assert kinds(events) == [("growth", (1,), (1,)), ("shrink", (0,), (0,)), ("continuation", (2,), (2,))]
        _, (_, events, _) = play([first, second], EventRules(growth=0.26))
        assert [event.kind for event in events] == ["continuation"] * 3

    def test_birth_and_death(self):
        _, (names, events, _) = play(
            [clusters(a=range(4), b=range(4, 8)), clusters(a=range(4), c=range(10, 13))]
        )
        assert names == {"a": 0, "c": 2}
        assert kinds(events) == [("birth", (), (2,)), ("death", (1,), ()), ("continuation", (0,), (0,))]

    def test_split(self):
        _, (names, events, _) = play([clusters(a=range(10)), clusters(a=range(6), b=range(6, 11))])
        assert names == {"a": 0, "b": 1}
        assert kinds(events) == [("split", (0,), (0, 1)), ("shrink", (0,), (0,))]
        assert (events[0].n_common, events[0].size_before, events[0].size_after) == (10, 10, 11)

    def test_merge(self):
        _, (names, events, _) = play([clusters(a=range(6), b=range(6, 10)), clusters(a=range(11))])
        assert names == {"a": 0}
        assert kinds(events) == [("merge", (0, 1), (0,)), ("growth", (0,), (0,))]
        assert (events[0].n_common, events[0].size_before, events[0].size_after) == (10, 10, 11)

    def test_split_and_merge_at_once(self):
        first = clusters(a=range(10), d=range(10, 13))
        second = clusters(b=[*range(7), *range(10, 13)], c=range(7, 10))
        _, (_, events, _) = play([first, second])
        assert kinds(events)[:2] == [("split", (0,), (0, 2)), ("merge", (0, 1), (0,))]
        assert {event.kind for event in events} == {"split", "merge", "continuation"}

    @pytest.mark.parametrize("n_parting, expected", [(2, "birth"), (3, "split")])
    def test_a_few_objects_are_no_part(self, n_parting, expected):
        # A split requires that 0.15 of the 20 objects leave.
        first = clusters(a=range(20))
        second = clusters(a=range(20 - n_parting), b=[*range(20 - n_parting, 20), 50])
        _, (_, events, _) = play([first, second])
        assert kinds(events)[0][0] == expected
        _, (_, events, _) = play([first, second], EventRules(part=0.1))
        assert kinds(events)[0][0] == "split"

    @pytest.mark.parametrize("m", [2, 3, 4])
    def test_equal_parts_are_all_told(self, m):
        # Also if each part has lost an object to another cluster.
        apart = [range(8 * i, 8 * i + 7) for i in range(m)]
        others = [*range(100, 130), *(8 * i + 7 for i in range(m))]
        split = clusters(**{f"part{i}": ids for i, ids in enumerate(apart)}, rest=others)
        whole = clusters(all=range(8 * m), rest=range(100, 130))
        _, (_, events, _) = play([whole, split])
        assert kinds(events)[0] == ("split", (0,), (0, *range(2, m + 1)))
        _, (_, events, _) = play([split, whole])
        assert kinds(events)[0] == ("merge", tuple(range(m)), (0,))

    def test_half_is_not_more_than_half(self):
        # 4 of the 8 old objects of b come from a: b is not a part of a, unless less than half is enough.
        first = clusters(a=range(8), c=range(8, 16))
        second = clusters(a=range(4), b=[*range(4, 8), *range(8, 12)], c=range(12, 16))
        _, (names, events, _) = play([first, second])
        assert names == {"a": 0, "b": 2, "c": 1}
        assert {event.kind for event in events} == {"birth", "shrink"}
        _, (_, events, _) = play([first, second], EventRules(overlap=0.4))
        assert "split" in {event.kind for event in events}

    @pytest.mark.parametrize("n_moving", [7, 8, 9, 11])
    def test_clusters_that_both_go_on_have_not_merged(self, n_moving):
        # A little more or less than half gives the same result.
        first = clusters(a=range(15), b=range(15, 30))
        second = clusters(a=range(15 + n_moving), b=range(15 + n_moving, 30))
        _, (names, events, _) = play([first, second])
        assert names == {"a": 0, "b": 1}
        assert [event.kind for event in events] == ["growth", "shrink"]

    def test_a_cluster_that_went_on_is_no_part_of_another(self):
        # Most objects now in b come from a; b keeps its name, and nothing has split.
        first = clusters(a=range(20), b=range(20, 30))
        second = clusters(a=range(8), b=range(8, 30))
        _, (names, events, _) = play([first, second])
        assert names == {"a": 0, "b": 1}
        assert [event.kind for event in events] == ["growth", "shrink"]

    def test_an_id_ends_where_little_is_left_of_it(self):
        # Cluster 2 keeps 1 of its 16 objects and takes 24 from cluster 1; its other 15 join cluster 0.
        first = clusters(a=range(40), b=range(40, 100), c=range(100, 116))
        second = clusters(a=[*range(40), *range(101, 116)], b=range(40, 76), c=[*range(76, 100), 100])
        _, (names, events, state) = play([first, second])
        assert names == {"a": 0, "b": 1, "c": 3}
        assert kinds(events) == [
            ("split", (1,), (1, 3)),
            ("merge", (0, 2), (0,)),
            ("growth", (0,), (0,)),
            ("shrink", (1,), (1,)),
        ]
        assert [d.name for d in state.dormant] == [2]

    def test_an_id_that_ends_among_many_is_a_death(self):
        # The same, but the 15 join all other clusters, and the new cluster comes from all others.
        groups = {f"g{i}": range(100 * i, 100 * i + 40) for i in range(5)}
        first = clusters(**groups, x=range(900, 916))
        takes = [range(100 * i, 100 * i + 5) for i in range(5)]
        gone = {
            f"g{i}": [*range(100 * i + 5, 100 * i + 40), *range(901 + 3 * i, 904 + 3 * i)] for i in range(5)
        }
        second = clusters(**gone, x=[*itertools.chain(*takes), 900])
        _, (names, events, _) = play([first, second])
        assert names["x"] == 6
        assert [str(event) for event in events[:2]] == [
            "cluster 6 (26 objects, 26 from other clusters) appeared",
            "cluster 5 (16 objects, 16 now in other clusters) disappeared",
        ]
        assert {event.kind for event in events[2:]} == {"continuation"}

    def test_objects_that_come_and_go_do_not_count_as_common(self):
        first = clusters(a=range(10))
        second = clusters(a=[0, 1, *range(20, 30)], b=[2, 3, *range(30, 40)])
        _, (_, events, _) = play([first, second])
        assert kinds(events)[0] == ("split", (0,), (0, 1))
        assert events[0].n_common == 4

    def test_sentences(self):
        written = {
            Event(
                "split", (3,), (3, 7, 8), 18, 20, 19
            ): "cluster 3 (20 objects) split into clusters 3, 7 and 8",
            Event("merge", (1, 2), (1,), 5, 6, 5): "clusters 1 and 2 (6 objects) merged into cluster 1",
            Event("return", (4,), (4,), 3, 5, 4): "cluster 4 returned with 3 of its 5 objects",
            Event("birth", (), (9,), 0, 0, 1): "cluster 9 (1 object) appeared",
            Event("birth", (), (9,), 2, 0, 5): "cluster 9 (5 objects, 2 from other clusters) appeared",
            Event("death", (9,), (), 0, 1, 0): "cluster 9 (1 object) disappeared",
            Event("death", (9,), (), 3, 4, 0): "cluster 9 (4 objects, 3 now in other clusters) disappeared",
            Event("growth", (2,), (2,), 4, 4, 8): "cluster 2 grew from 4 objects to 8 objects",
            Event("shrink", (2,), (2,), 1, 4, 1): "cluster 2 shrank from 4 objects to 1 object",
            Event("move", (2,), (5,), 1, 4, 4, ("a",), (0.9,)): "a moved from cluster 2 to cluster 5",
            Event(
                "move", (2,), (5,), 6, 9, 8, tuple("abcdef"), (0.9,) * 6
            ): "a, b, c, d and 2 others moved from cluster 2 to cluster 5",
            Event("continuation", (2,), (2,), 4, 4, 4): "cluster 2 continued with 4 objects",
        }
        assert {event.kind for event in written} == set(KINDS)
        for event, sentence in written.items():
            assert str(event) == sentence


class TestFewObjects:
    """A single object causes no event, if the rules can exclude it."""

    @pytest.mark.parametrize(
        "before, now, expected",
        [
            (1, 2, "continuation"),
            (2, 1, "continuation"),
            (4, 5, "continuation"),
            (5, 4, "continuation"),
            (1, 3, "growth"),
            (3, 1, "shrink"),
            (4, 6, "growth"),
            (8, 10, "growth"),
            (9, 11, "continuation"),
        ],
    )
    def test_sizes(self, before, now, expected):
        _, (_, events, _) = play([clusters(a=range(before)), clusters(a=range(now))])
        assert kinds(events) == [(expected, (0,), (0,))]

    def test_one_object_leaves(self):
        together, apart = clusters(a=range(4)), clusters(a=range(3), b=[3])
        _, (_, events, _) = play([together, apart])
        assert kinds(events) == [("birth", (), (1,)), ("continuation", (0,), (0,))]
        _, (_, events, _) = play([apart, together])
        assert kinds(events) == [("death", (1,), ()), ("continuation", (0,), (0,))]

    def test_unless_one_is_asked_for(self):
        together, apart = clusters(a=range(4)), clusters(a=range(3), b=[3])
        rules = EventRules(min_objects=1)
        _, (_, events, _) = play([together, apart], rules)
        assert kinds(events) == [("split", (0,), (0, 1)), ("shrink", (0,), (0,))]
        _, (_, events, _) = play([apart, together], rules)
        assert kinds(events) == [("merge", (0, 1), (0,)), ("growth", (0,), (0,))]

    def test_two_pairs_are_enough_to_merge_and_to_split(self):
        together, apart = clusters(a=range(4)), clusters(a=range(2), b=range(2, 4))
        _, (_, split, _), (_, merge, _) = play([together, apart, together])
        assert kinds(split)[0] == ("split", (0,), (0, 1)) and kinds(merge)[0] == ("merge", (0, 1), (0,))


class TestNames:
    @pytest.mark.parametrize("first, second", [(10, 10), (12, 8), (8, 12)])
    def test_two_clusters_taken_for_one_get_their_names_back(self, first, second):
        apart = clusters(a=range(first), b=range(first, first + second))
        names = [n for n, _, _ in play([apart, clusters(x=range(20)), apart])]
        assert names[0] == names[2] == {"a": 0, "b": 1}

    def test_the_event_of_a_merge_undone(self):
        apart = clusters(a=range(8), b=range(8, 20))
        *_, (_, events, state) = play([apart, clusters(x=range(20)), apart])
        assert kinds(events)[:2] == [("split", (1,), (0, 1)), ("return", (0,), (0,))]
        assert events[1].n_common == events[1].size_before == 8
        assert state.dormant == () and state.fresh == 2

    def test_a_cluster_taken_for_noise_returns(self):
        whole = clusters(a=range(6), b=range(6, 12))
        missed = clusters(a=range(6)) | dict.fromkeys(range(6, 12), -1)
        (_, _, _), (_, lost, state), (names, found, _) = play([whole, missed, whole])
        assert ("death", (1,), ()) in kinds(lost) and [d.name for d in state.dormant] == [1]
        assert names == {"a": 0, "b": 1}
        assert ("return", (1,), (1,)) in kinds(found) and "birth" not in dict(e[:2] for e in kinds(found))

    def test_all_noise_for_a_step(self):
        whole = clusters(a=range(6), b=range(6, 12))
        *_, (names, events, _) = play([whole, dict.fromkeys(range(12), -1), whole])
        assert names == {"a": 0, "b": 1}
        assert [event.kind for event in events] == ["return", "return"]

    def test_a_cluster_without_objects_is_none(self):
        # A clusterer that finds only noise reports one empty cluster.
        state, _ = follow(
            Clusters.none(), np.zeros((0, 1)), [3], members_before=list, members=lambda: [{1, 2, 3}]
        )
        state, events = follow(state, [[0]], [0], members_before=lambda: [{1, 2, 3}], members=lambda: [set()])
        assert kinds(events) == [("death", (0,), ())] and state.fresh == 1
        state, events = follow(state, [[0]], [3], members_before=lambda: [set()], members=lambda: [{1, 2, 3}])
        assert kinds(events) == [("return", (0,), (0,))] and state.names.tolist() == [0]

    @pytest.mark.parametrize(
        "n_away, max_dormant, back", [(1, 1, True), (3, 3, True), (4, 3, False), (1, 0, False)]
    )
    def test_memory_lasts_so_many_steps(self, n_away, max_dormant, back):
        here, away = clusters(a=range(4), b=range(4, 8)), clusters(a=range(4))
        told = play([here, *[away] * n_away, here], EventRules(max_dormant=max_dormant))
        assert told[-1][0] == ({"a": 0, "b": 1} if back else {"a": 0, "b": 2})
        assert kinds(told[-1][1])[0][0] == ("return" if back else "birth")

    def test_most_of_the_objects_must_be_the_same(self):
        here, away = clusters(a=range(4), b=range(4, 10)), clusters(a=range(4))
        for back, name in [
            ([4, 5, 6, 7], 1),
            ([4, 5, 6, 20, 21, 22], 2),
            ([*range(4, 10), *range(20, 25)], 1),
        ]:
            assert play([here, away, clusters(a=range(4), b=back)])[-1][0]["b"] == name
        # All of its returned objects are there, but this is one of twelve.
        large = clusters(a=range(4), b=range(4, 16))
        for back, name in [([4], 2), ([4, 5], 1)]:
            assert play([large, away, clusters(a=range(4), b=back)])[-1][0]["b"] == name
        # Three of six returned to another cluster: half is not a majority.
        assert play([here, away, clusters(a=[*range(4), 7, 8, 9], b=[4, 5, 6])])[-1][0]["b"] == 2

    def test_a_return_keeps_to_the_rules_of_names(self):
        # An overlap of a third is enough for `overlap`, but not for a continuity of 0.4.
        here, away = clusters(a=range(4), b=range(4, 10)), clusters(a=range(4))
        back = clusters(a=[*range(4), 6, 7, 8, 9], b=[4, 5, *range(20, 24)])
        for continuity, name in [(0.4, 2), (0.3, 1)]:
            rules = EventRules(overlap=0.2, continuity=continuity)
            assert play([here, away, back], rules)[-1][0]["b"] == name

    def test_missing_clusters_return_where_little_is_left_of_a_name(self):
        # b and most of c merge; the rest of c joins d. After they separate, b and c have their names again.
        apart = clusters(a=range(30), b=range(30, 60), c=range(60, 76))
        merged = clusters(a=range(30), b=range(30, 75), d=[75, *range(80, 104)])
        again = apart | dict.fromkeys(range(80, 104), "d")
        names = [n for n, _, _ in play([apart, merged, again])]
        assert names == [{"a": 0, "b": 1, "c": 2}, {"a": 0, "b": 1, "d": 3}, {"a": 0, "b": 1, "c": 2, "d": 3}]

    def test_of_two_missing_clusters_the_last_seen_returns(self):
        here, group = frozenset(range(5)), frozenset(range(5, 9))
        missing = (Dormant(2, last_seen=4, members=group), Dormant(1, last_seen=3, members=group))
        for dormant in (missing, missing[:1]):
            before = Clusters(np.array([0]), np.array([5]), fresh=3, t=5, dormant=dormant)
            now, _ = follow(before, [[5, 0]], [5, 4], members_before=list, members=lambda: [here, group])
            assert now.names.tolist() == [0, 2] and now.dormant == dormant[1:]

    def test_a_cluster_that_goes_on_keeps_its_name(self):
        # b joined a, and most remaining objects of both belonged to b: a still did not split.
        steps = [
            clusters(a=range(7), b=range(7, 12)),
            clusters(a=range(12)),
            clusters(a=range(4, 12), c=range(30, 33)),
        ]
        names = [n for n, _, _ in play(steps)]
        assert names[1:] == [{"a": 0}, {"a": 0, "c": 2}]

    def test_no_common_object_no_old_name(self):
        *_, (names, _, _) = play(
            [clusters(a=range(3), b=range(3, 6)), clusters(x=range(10, 13), y=range(13, 16))]
        )
        assert names == {"x": 2, "y": 3}

    def test_members_are_asked_for_only_when_needed(self):
        def never():
            raise AssertionError("not needed")

        state, _ = follow(Clusters.none(), np.zeros((0, 2)), [3, 4], members_before=never, members=never)
        state, _ = follow(state, [[3, 0], [0, 4]], [3, 4], members_before=never, members=never)
        state, _ = follow(state, [[2, 1, 0], [0, 0, 4]], [2, 1, 4], members_before=never, members=never)
        merged = follow(state, [[2], [1], [4]], [7], members_before=lambda: [{1}, {2}, {3}], members=never)[0]
        assert len(merged.dormant) == 2
        forgetful = EventRules(max_dormant=0)
        follow(state, [[2], [1], [4]], [7], members_before=never, members=never, rules=forgetful)


class TestRandomHistories:
    """Properties on randomly changing partitions, with objects that come, go and are noise."""

    @pytest.fixture(params=range(15))
    def told(self, request):
        rng = np.random.default_rng(request.param)
        labels, steps = rng.integers(0, 5, 40), []
        for _ in range(25):
            moved = rng.random(40) < 0.15
            labels = np.where(moved, rng.integers(-1, 5, 40), labels)
            if rng.random() < 0.3:
                labels[labels == rng.integers(0, 5)] = rng.integers(0, 5)
            present = rng.random(40) < 0.9
            steps.append({int(i): int(labels[i]) for i in np.flatnonzero(present)})
        return steps, play(steps, EventRules(max_dormant=4))

    def test_each_name_stands_in_an_event_and_has_one_fate(self, told):
        _, history = told
        before = set()
        for names, events, _ in history:
            now = set(names.values())
            assert len(now) == len(names)
            assert {n for e in events for n in e.before} >= before and {
                n for e in events for n in e.after
            } >= now
            for kind, group in [("birth", now - before), ("return", now - before), ("death", before - now)]:
                assert {n for e in events if e.kind == kind for n in e.before + e.after} <= group
            goes_on = [e.after[0] for e in events if e.kind in ("growth", "shrink", "continuation")]
            assert sorted(goes_on) == sorted(now & before)
            before = now

    def test_sizes_and_common_objects(self, told):
        steps, history = told
        for (earlier, later), ((old, _, _), (new, events, _)) in zip(
            itertools.pairwise(steps), itertools.pairwise(history), strict=True
        ):
            members_old = {old[c]: {i for i in earlier if earlier[i] == c} for c in old}
            members_new = {new[c]: {i for i in later if later[i] == c} for c in new}
            for e in events:
                if e.kind == "return":
                    assert e.size_after == len(members_new[e.after[0]]) and 0 < e.n_common <= e.size_before
                    continue
                # A birth is compared with all previous clusters, a death with all current ones.
                a = set().union(*(members_old[n] for n in e.before))
                b = set().union(*(members_new[n] for n in e.after))
                common = (a if e.before else set().union(*members_old.values())) & (
                    b if e.after else set().union(*members_new.values())
                )
                assert (e.n_common, e.size_before, e.size_after) == (len(common), len(a), len(b))

    def test_names_are_never_given_twice_and_memory_is_bounded(self, told):
        _, history = told
        fresh, given = 0, set()
        for t, (names, events, state) in enumerate(history):
            new = set(names.values()) - given
            assert all(name >= fresh for name in new) and state.fresh >= fresh
            fresh, given = state.fresh, given | new
            assert all(1 <= t - d.last_seen <= 4 for d in state.dormant)
            assert not {d.name for d in state.dormant} & set(names.values())
            assert {e.after[0] for e in events if e.kind == "return"} <= given

    def test_without_memory_the_matching_is_optimal(self, told):
        steps, _ = told
        for (earlier, later), ((old, _, _), (new, _, _)) in zip(
            itertools.pairwise(steps), itertools.pairwise(play(steps, EventRules(max_dormant=0))), strict=True
        ):
            table = np.array(
                [[sum(earlier.get(i) == a and later[i] == b for i in later) for b in new] for a in old]
            )
            agreed = sum(
                table[i, j]
                for (i, a), (j, b) in itertools.product(enumerate(old.values()), enumerate(new.values()))
                if a == b
            )
            counts = [
                [sum(x == c for x in step.values()) for c in names]
                for step, names in ((earlier, old), (later, new))
            ]
            allowed = reference.may_go_on(table, *counts, 0.4, 0.1)
            assert agreed == reference.best_matching(np.where(allowed, table, 0))


@st.composite
def histories(draw):
    """Draw steps of {id: label} with changing objects, -1 for no cluster, and rules."""
    n, k = draw(st.integers(1, 14)), draw(st.integers(1, 4))
    labels = st.none() | st.integers(-1, k - 1)
    steps = draw(st.lists(st.lists(labels, min_size=n, max_size=n), min_size=2, max_size=6))
    tenths = st.integers(0, 10).map(lambda x: x / 10)
    rules = EventRules(
        overlap=draw(tenths),
        part=draw(tenths),
        max_dormant=draw(st.integers(0, 3)),
        continuity=draw(tenths),
        min_share=draw(tenths),
        min_objects=draw(st.integers(1, 3)),
    )
    return [{i: c for i, c in enumerate(step) if c is not None} for step in steps], rules


class TestAnyHistory:
    """Properties that hold for any partitions and any rules."""

    @settings(max_examples=200)
    @given(histories())
    def test_each_name_stands_in_an_event_that_says_what_became_of_it(self, case):
        before = set()
        for names, events, _ in play(*case):
            now = set(names.values())
            fates = {(e.kind, n) for e in events for n in e.before}
            origins = {(e.kind, n) for e in events for n in e.after}
            assert {n for _, n in fates} >= before and {n for _, n in origins} >= now
            for name in before - now:
                assert {kind for kind, n in fates if n == name} <= {"split", "merge", "death"}
            for name in now - before:
                assert {kind for kind, n in origins if n == name} <= {"split", "merge", "birth", "return"}
            for event in events:
                if event.kind == "split":
                    assert not (set(event.after) - set(event.before)) & before and len(event.after) > 1
                if event.kind == "merge":
                    assert not (set(event.before) - set(event.after)) & now and len(event.before) > 1
            before = now

    @settings(max_examples=200)
    @given(histories())
    def test_names_are_never_given_twice(self, case):
        given_names, before = set(), set()
        for names, events, state in play(*case):
            now = set(names.values())
            assert len(now) == len(names)
            returned = {n for e in events if e.kind == "return" for n in e.after}
            new = now - before - returned
            assert not new & given_names and returned <= given_names
            given_names |= now
            assert state.fresh == max(given_names, default=-1) + 1
            before = now

    @settings(max_examples=200)
    @given(histories())
    def test_a_name_goes_on_only_where_clusters_are_alike(self, case):
        steps, rules = case
        told = play(steps, rules)
        for (earlier, later), ((old, _, _), (new, _, _)) in zip(
            itertools.pairwise(steps), itertools.pairwise(told), strict=True
        ):
            (groups, a), (groups_now, b) = groups_of(earlier), groups_of(later)
            if not groups or not groups_now:
                continue
            table = [[len(x & y) for y in groups_now] for x in groups]
            sizes = [len(x) for x in groups], [len(y) for y in groups_now]
            allowed = reference.may_go_on(table, *sizes, rules.continuity, rules.min_share)
            for c, d in itertools.product(range(len(a)), range(len(b))):
                assert allowed[c][d] or old[a[c]] != new[b[d]]

    @settings(max_examples=300)
    @given(st.integers(0, 3), st.integers(1, 3), st.integers(1, 3), st.randoms(use_true_random=False))
    def test_among_equals_clusters_that_were_there_come_first_then_those_last_seen(
        self, k_before, n, k, random
    ):
        # Weights as from a table: a number of objects, plus less than one for all pairs together.
        both = np.array([[random.choice([0, 3, 4]) for _ in range(k)] for _ in range(k_before + n)])
        similarity = np.where(both > 0, [[random.choice([1, 4]) / 4 for _ in range(k)] for _ in both], 0)
        shares = [1 + min(k_before, k)] * k_before + [1 + min(n, k)] * n
        weights = both + similarity / np.array(shares)[:, None]
        missing = tuple(Dormant(k_before + i, -1 - i, frozenset()) for i in range(n))
        before = Clusters(np.arange(k_before), np.full(k_before, 9), k_before + n, 0, missing)
        names = _matched_with_dormant(weights[:k_before], weights[k_before:], before)
        found = {d: int(name) for d, name in enumerate(names) if name < before.fresh}
        ranks = [n] * k_before + list(range(n))[::-1]

        def order(matching):
            pairs = [(c, d) for d, c in matching.items()]
            exact = [(both[p], ranks[p[0]], weights[p] - both[p]) for p in pairs]
            return tuple(round(float(sum(x)), 9) for x in zip(*exact, strict=True)) or (0, 0, 0)

        assert order(found) == max(order(m) for m in reference.matchings(both > 0))

    @given(histories())
    def test_the_order_of_objects_does_not_matter(self, case):
        steps, rules = case
        turned = [dict(reversed(step.items())) for step in steps]
        told, again = play(steps, rules), play(turned, rules)
        assert [t[:2] for t in told] == [t[:2] for t in again]


def test_members_of_leaves_noise_out():
    assert members_of(np.array([1, -1, 0, 1]), ("w", "x", "y", "z"), 3) == [{"y"}, {"w", "z"}, set()]


@pytest.mark.parametrize(
    "rules, message",
    [
        (EventRules(overlap=1.5), "overlap must be between 0 and 1, got 1.5"),
        (EventRules(part=-1.0), "part must be between 0 and 1"),
        (EventRules(continuity=2), "continuity must be between 0 and 1, got 2"),
        (EventRules(min_share=-0.1), "min_share must be between 0 and 1, got -0.1"),
        (EventRules(min_objects=0), "min_objects must be at least 1, got 0"),
        (EventRules(growth=0.0), "growth must be greater than 0, got 0.0"),
        (EventRules(max_dormant=-1), "max_dormant must be at least 0, got -1"),
    ],
)
def test_rules_are_checked(rules, message):
    with pytest.raises(ax.exceptions.InputError, match=message):
        rules.check()
    EventRules().check()


@settings(max_examples=100)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_no_matching_is_better(k_before, k, seed):
    table = np.random.default_rng(seed).integers(0, 6, size=(k_before, k))
    names = match_clusters(table, np.arange(k_before) * 10, fresh=1000)
    common = sum(table[name // 10, c] for c, name in enumerate(names) if name < 1000)
    assert common == reference.best_matching(table)
    assert len(set(names.tolist())) == k


def test_greedy_is_not_enough():
    # Five clusters for which greedy matching gives 8 of 11.
    table = np.diag([0, 0, 0, 0, 0])
    table[0, 0], table[0, 1], table[1, 0] = 3, 2, 3
    table[2, 2], table[3, 3], table[4, 4] = 2, 2, 2
    names = match_clusters(table, np.arange(5), fresh=5)
    assert sum(table[name, c] for c, name in enumerate(names) if name < 5) == 11


def test_clusters_without_a_common_object_get_fresh_names():
    names = match_clusters(np.array([[3, 0, 0], [0, 0, 0]]), np.array([4, 7]), fresh=9)
    assert names.tolist() == [4, 9, 10]


def test_many_clusters_are_quick():
    k = 200
    order = np.random.default_rng(0).permutation(k)
    table = np.zeros((k, k), dtype=int)
    table[order, np.arange(k)] = 5
    np.testing.assert_array_equal(match_clusters(table, np.arange(k), k), order)


def test_labels(eager_xp):
    matched = ax.match_labels(eager_xp.array([1, 1, 0, 0, 2]), eager_xp.array([0, 0, 1, 1, 1]))
    assert eager_xp.owns(matched)
    assert eager_xp.numpy(matched).tolist() == [0, 0, 1, 1, 2]


def test_labels_of_other_objects():
    matched = ax.match_labels([0, 0, 1, 1, -1], [5, 5, 3], ids=list("cxabd"), previous_ids=list("abc"))
    assert matched.tolist() == [3, 3, 5, 5, -1]


def test_nothing_in_common():
    assert ax.match_labels([0, 1], [0, 1], ids="ab", previous_ids="xy").tolist() == [2, 3]


def test_lengths_must_agree():
    with pytest.raises(ValueError, match="pass ids and previous_ids"):
        ax.match_labels([0, 1], [0, 1, 1])


# Names continue only if clusters are similar enough.


def labelled(table):
    """Return previous and current labels with the given number of objects in each pair of clusters."""
    table = np.asarray(table)
    pairs = np.argwhere(table >= 0).repeat(table.ravel(), axis=0)
    return pairs[:, 0], pairs[:, 1]


def kept(table, **rules):
    """Return the previous id of each current cluster, None for a new one."""
    before, now = labelled(table)
    matched = ax.match_labels(now, before, **rules)
    names = [int(matched[now == d][0]) for d in range(np.shape(table)[1])]
    assert len(set(names)) == len(names)
    return [name if name < np.shape(table)[0] else None for name in names]


def test_one_object_of_many_does_not_keep_an_id():
    # Cluster 2 keeps 1 of its 16 objects and gains 24 from cluster 1; the others join cluster 0.
    table = [[40, 0, 0], [0, 36, 24], [15, 0, 1]]
    assert kept(table) == [0, 1, None]
    assert kept(table, continuity=0.0, min_share=0.0) == [0, 1, 2]


def test_pairs_that_are_not_alike_do_not_distort_the_others():
    # Two objects of cluster 1 in the first cluster would pass the id of cluster 0 to its smaller half.
    table = [[31, 30, 0], [2, 0, 60], [0, 0, 200]]
    assert kept(table, continuity=0.0, min_share=0.0) == [1, 0, 2]
    assert kept(table) == [0, None, 2]


@pytest.mark.parametrize("m", range(2, 7))
def test_a_part_of_a_split_and_the_result_of_a_merge_keep_an_id(m):
    parts = np.full(m, 6)
    parts[1] += 1
    split = np.zeros((3, m + 2), dtype=int)
    split[0, :m], split[1, m], split[2, m + 1] = parts, 20, 9
    names = kept(split)
    assert names[1] == 0 and names[m:] == [1, 2] and names.count(None) == m - 1
    assert kept(split.T)[0] == 1  # the largest of the merged clusters


def test_a_cluster_in_seven_equal_parts_is_none_of_them():
    assert kept([[6] * 7]) == [None] * 7
    assert kept([[6] * 7], continuity=0.3).count(0) == 1


@pytest.mark.parametrize("share", [10, 20, 30, 50])
def test_turnover(share):
    k = 5
    table = np.full((k, k), share // 4)
    np.fill_diagonal(table, 100 - share // 4 * (k - 1))
    assert kept(table) == list(range(k))


@pytest.mark.parametrize("continuity, goes_on", [(0.4, True), (0.41, False)])
def test_at_the_threshold_an_id_goes_on(continuity, goes_on):
    table = np.ones((4, 4), dtype=int) + np.eye(4, dtype=int)  # two of five stay
    assert kept(table, continuity=continuity) == (list(range(4)) if goes_on else [None] * 4)
    assert kept(5 * np.eye(4, dtype=int), continuity=1.0) == list(range(4))


def test_clusters_that_swap_their_objects_swap_their_labels():
    assert kept([[2, 18, 0], [18, 2, 0], [0, 0, 9]]) == [1, 0, 2]


def test_of_equal_overlaps_the_more_similar_cluster_keeps_the_id():
    for order in ([0, 1, 2], [2, 1, 0]):
        table = np.array([[5, 5, 0], [0, 6, 9]])[:, order]
        assert [kept(table)[order.index(d)] for d in range(3)] == [0, None, 1]


@pytest.mark.parametrize(
    "table, expected",
    [
        ([[1]], [0]),
        ([[1, 0], [0, 1]], [0, 1]),
        ([[1, 1]], [0, None]),  # a pair splits
        ([[1], [1]], [0]),
        ([[1, 1], [1, 1]], [0, 1]),  # half of a pair exceeds 0.4
        ([[2, 1, 0], [0, 2, 1], [1, 0, 2]], [0, 1, 2]),  # two of three stay
        ([[1, 1, 1], [1, 1, 1], [1, 1, 1]], [None] * 3),  # one of three stays
    ],
)
def test_tiny_clusters(table, expected):
    assert sorted(kept(table), key=str) == sorted(expected, key=str)


class TestObjectsThatComeAndGo:
    """Only common objects are compared; they must be a sufficient share of the smaller cluster."""

    @pytest.mark.parametrize("n_common, goes_on", [(2, False), (4, False), (5, True), (50, True)])
    def test_few_are_left_among_newcomers(self, n_common, goes_on):
        before, now = range(50), [*range(n_common), *range(100, 150 - n_common)]
        matched = ax.match_labels([0] * 50, [0] * 50, ids=now, previous_ids=before)
        assert (matched[0] == 0) == goes_on

    @pytest.mark.parametrize("big_first", [True, False])
    def test_two_of_two_are_all_there_is(self, big_first):
        ids = [range(50), range(2)] if big_first else [range(2), range(50)]
        matched = ax.match_labels([0] * len(ids[1]), [0] * len(ids[0]), ids=ids[1], previous_ids=ids[0])
        assert matched[0] == 0

    def test_objects_of_no_cluster_are_not_common(self):
        # One object of 16 is in a cluster at both steps; the other current members were noise before.
        before = np.array([0] * 16 + [-1] * 24)
        now = np.array([0] + [-1] * 15 + [0] * 24)
        assert ax.match_labels(now, before)[0] == 1
        assert ax.match_labels(now, before, min_share=0.0)[0] == 0


@pytest.mark.parametrize("name", ["continuity", "min_share"])
def test_thresholds_are_checked(name):
    with pytest.raises(ax.exceptions.InputError, match=f"{name} must be between 0 and 1, got 1.5"):
        ax.match_labels([0], [0], **{name: 1.5})


THRESHOLDS = st.integers(0, 10).map(lambda tenths: tenths / 10)


@st.composite
def cases(draw, largest=4):
    """Draw a table of common objects, the sizes of clusters, and thresholds."""
    k_before, k = draw(st.integers(1, largest)), draw(st.integers(1, largest))
    numbers = st.integers(0, draw(st.sampled_from([1, 3, 12])))
    table = np.array(draw(st.lists(numbers, min_size=k * k_before, max_size=k * k_before))).reshape(
        k_before, k
    )
    others = st.integers(0, 30)
    sizes_before = table.sum(axis=1) + draw(st.lists(others, min_size=k_before, max_size=k_before))
    sizes = table.sum(axis=0) + draw(st.lists(others, min_size=k, max_size=k))
    return table, sizes_before, sizes, draw(THRESHOLDS), draw(THRESHOLDS)


def matched(table, sizes_before, sizes, continuity, min_share):
    """Return the matching, from columns to rows, by way of weights."""
    smaller = np.minimum.outer(sizes_before, sizes)
    weights = matching_weights(table, *totals(table), smaller, continuity, min_share)
    names = match_clusters(weights, np.arange(len(table)), fresh=len(table))
    return {d: int(name) for d, name in enumerate(names) if name < len(table)}


def worth(table, matching):
    """Return the number of common objects, then the similarity of clusters."""
    out, into = totals(table)
    pairs = [(c, d) for d, c in matching.items()]
    return (
        sum(int(table[p]) for p in pairs),
        round(sum(table[c, d] / np.sqrt(out[c, 0] * into[0, d]) for c, d in pairs), 9),
    )


@settings(max_examples=300)
@given(cases())
def test_the_matching_is_the_best_over_the_pairs_that_may_be(case):
    table = case[0]
    allowed = reference.may_go_on(*case)
    found = matched(*case)
    assert all(allowed[c][d] for d, c in found.items())
    assert worth(table, found) == max(worth(table, m) for m in reference.matchings(allowed))


@settings(max_examples=200)
@given(cases(), st.randoms(use_true_random=False))
def test_the_order_of_clusters_does_not_matter(case, random):
    table, sizes_before, sizes, *rules = case
    rows, columns = (random.sample(range(n), n) for n in table.shape)
    found = matched(table[rows][:, columns], sizes_before[rows], sizes[columns], *rules)
    found = {columns[d]: rows[c] for d, c in found.items()}
    assert worth(table, found) == worth(table, matched(*case))
    best = worth(table, found)
    if sum(worth(table, m) == best for m in reference.matchings(reference.may_go_on(*case))) == 1:
        assert found == matched(*case)


@given(cases(), st.randoms(use_true_random=False))
def test_the_order_of_objects_does_not_matter(case, random):
    before, now = labelled(case[0])
    order = np.array(random.sample(range(len(now)), len(now)), dtype=int)
    rules = {"continuity": case[3], "min_share": case[4]}
    there = np.array(
        random.sample(range(len(now)), len(now)), dtype=int
    )  # the previous objects, in another order
    names = ax.match_labels(now[order], before[there], order, there, **rules)
    np.testing.assert_array_equal(names, ax.match_labels(now, before, **rules)[order])


@pytest.mark.parametrize("seed", range(20))
def test_a_sparse_table_gives_the_same_names_and_events(seed):
    rng, n, k = np.random.default_rng(seed), 300, 20
    labels = [rng.integers(-1, k, n)]
    for _ in range(3):  # some clusters disappear, and some of these return
        moved = np.where(rng.random(n) < 0.2, rng.integers(-1, k, n), labels[0])
        labels.append(np.where(np.isin(moved, rng.integers(0, k, 3)), rng.integers(0, k, n), moved))
    states = [Clusters.none(), Clusters.none()]
    for before, now in zip([np.full(n, -1), *labels[:-1]], labels, strict=True):
        k_before = len(states[0].names)
        table = np.zeros((k_before, k), dtype=int)
        both = (before >= 0) & (now >= 0)
        np.add.at(table, (before[both], now[both]), 1)
        table = table * 1000 + rng.integers(0, 10, table.shape) * (table > 0)  # without ties
        known = {
            "sizes": 2000 * np.bincount(now[now >= 0], minlength=k),
            "members_before": lambda before=before: members_of(before, range(n), k),
            "members": lambda now=now: members_of(now, range(n), k),
        }
        found = [
            follow(state, given, **known)
            for state, given in zip(states, [table, scipy.sparse.csr_array(table)], strict=True)
        ]
        np.testing.assert_array_equal(found[0][0].names, found[1][0].names)
        assert found[0][1] == found[1][1]
        states = [state for state, _ in found]
