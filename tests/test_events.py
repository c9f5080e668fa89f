"""Events between steps, and names that outlast a step in which a cluster is missed."""

import itertools

import numpy as np
import pytest
from reference import best_matching

import affect_xp as ax
from affect_xp.events import KINDS, Clusters, Dormant, Event, EventRules, follow, members_of


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
        # A quarter of the 12 objects must go for it to be a split.
        first = clusters(a=range(12))
        second = clusters(a=range(12 - n_parting), b=[*range(12 - n_parting, 12), 50])
        _, (_, events, _) = play([first, second])
        assert kinds(events)[0][0] == expected
        _, (_, events, _) = play([first, second], EventRules(part=0.1))
        assert kinds(events)[0][0] == "split"

    def test_half_is_not_more_than_half(self):
        # b draws 4 of its 8 old objects from a: it is no part of it, unless less than half is enough.
        first = clusters(a=range(8), c=range(8, 16))
        second = clusters(a=range(4), b=[*range(4, 8), *range(8, 12)], c=range(12, 16))
        _, (_, events, _) = play([first, second])
        assert {event.kind for event in events} == {"birth", "shrink", "continuation"}
        _, (_, events, _) = play([first, second], EventRules(overlap=0.4))
        assert "split" in {event.kind for event in events}

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
            Event("death", (9,), (), 0, 1, 0): "cluster 9 (1 object) disappeared",
            Event("growth", (2,), (2,), 4, 4, 8): "cluster 2 grew from 4 objects to 8 objects",
            Event("shrink", (2,), (2,), 1, 4, 1): "cluster 2 shrank from 4 objects to 1 object",
            Event("continuation", (2,), (2,), 4, 4, 4): "cluster 2 went on with 4 objects",
        }
        assert {event.kind for event in written} == set(KINDS)
        for event, sentence in written.items():
            assert str(event) == sentence


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
        # A clusterer that finds only noise reports one cluster, and nobody in it.
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
        # Three of six came back elsewhere: half is not most.
        assert play([here, away, clusters(a=[*range(4), 7, 8, 9], b=[4, 5, 6])])[-1][0]["b"] == 2

    def test_of_two_missing_clusters_the_last_seen_returns(self):
        here, group = frozenset(range(5)), frozenset(range(5, 9))
        missing = (Dormant(2, last_seen=4, members=group), Dormant(1, last_seen=3, members=group))
        for dormant in (missing, missing[:1]):
            before = Clusters(np.array([0]), np.array([5]), fresh=3, t=5, dormant=dormant)
            now, _ = follow(before, [[5, 0]], [5, 4], members_before=list, members=lambda: [here, group])
            assert now.names.tolist() == [0, 2] and now.dormant == dormant[1:]

    def test_a_cluster_that_goes_on_keeps_its_name(self):
        # b joined a, and most of what is left of both belonged to b: still, a did not fall apart.
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
    """Properties on partitions that change at random, with objects that come, go and are noise."""

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
                a = set().union(*(members_old[n] for n in e.before))
                b = set().union(*(members_new[n] for n in e.after))
                assert (e.n_common, e.size_before, e.size_after) == (len(a & b), len(a), len(b))

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
            assert agreed == best_matching(table)


def test_members_of_leaves_noise_out():
    assert members_of(np.array([1, -1, 0, 1]), ("w", "x", "y", "z"), 3) == [{"y"}, {"w", "z"}, set()]


@pytest.mark.parametrize(
    "rules, message",
    [
        (EventRules(overlap=1.5), "overlap must lie between 0 and 1, got 1.5"),
        (EventRules(part=-1.0), "part must lie between 0 and 1"),
        (EventRules(growth=0.0), "growth must be more than 0, got 0.0"),
        (EventRules(max_dormant=-1), "max_dormant must be at least 0, got -1"),
    ],
)
def test_rules_are_checked(rules, message):
    with pytest.raises(ax.exceptions.InputError, match=message):
        rules.check()
    EventRules().check()
