// Questions about the data of a run: members, moves, search, tables.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as runs from "../../../affect_xp/report/js/run.mjs";

const DATA = {
  times: ["mon", "tue", "wed"], n: [4, 4, 4], k: [2, 2, 2], alpha: [null, 0.5, 0.25], changes: [], changesNote: "",
  palette: ["#111111", "#222222"], order: [0, 7], colours: { 0: 0, 7: 1 },
  sizes: [[[0, 2], [7, 2]], [[0, 3], [7, 1]], [[0, 1], [7, 2]]], links: [[], [[0, 0, 2], [7, 0, 1], [7, 7, 1]], [[0, 0, 1], [0, 7, 1], [7, 7, 1]]],
  events: [[], [{ kind: "growth", text: "cluster 0, \"the large\" one, grew", before: [0], after: [0], counts: [2, 2, 3] }], []],
  ids: ["ann", "bob", "joanna", "Ann b"], labels: [[0, 0, 7, 7], [0, 0, 0, 7], [0, 7, -2, -1]],
  moved: [null, null, [[1, 0.4], [3, 0.9]]], nObjects: 4, notes: [], kept: [null, 0.75, 0.5],
  keptByCluster: [[null, null], [1, 0.5], [0.333, 0]], measure: "silhouette", cohesion: [0.5, 0.4, null], features: ["x", "y"],
  profiles: [[[[1, 3, 0.5, 1, 2]], [[0, 1, 0, 1, 0]]], [null, null], [null, null]], densities: null,
};
const run = runs.makeRun(DATA);

test("steps without times are named by t", () => {
  assert.deepEqual(run.when, DATA.times);
  assert.deepEqual(runs.makeRun({ ...DATA, times: ["0", "1", "2"] }).when, ["t = 0", "t = 1", "t = 2"]);
});

test("members that came are first, and absent objects are in no group", () => {
  assert.deepEqual([...runs.membersAt(run, 1)], [[0, [2, 0, 1]], [7, [3]]]);
  assert.deepEqual(new Map(runs.membersAt(run, 2)), new Map([[0, [0]], [7, [1]], [-1, [3]]]));
  assert.deepEqual(runs.leftAt(run, 2, 0), [1, 2]);
  assert.deepEqual(runs.leftAt(run, 0, 0), []);
});

test("moves are changes of clusters, or the most probable first", () => {
  assert.deepEqual(runs.movesAt(run, 0), []);
  assert.deepEqual(runs.movesAt(run, 1), [{ row: 2, from: 7, to: 0, p: null }]);
  assert.deepEqual(runs.movesAt(run, 2), [{ row: 3, from: 7, to: -1, p: 0.9 }, { row: 1, from: 0, to: 7, p: 0.4 }]);
});

test("an object is followed in stays", () => {
  assert.deepEqual(runs.staysOf(run, 1), [{ first: 0, last: 1, name: 0 }, { first: 2, last: 2, name: 7 }]);
  assert.equal(runs.changesOf(runs.staysOf(run, 1)), 1);
  const returned = [3, -2, 3, 4, -1].map((name, t) => ({ first: t, last: t, name }));
  assert.equal(runs.changesOf(returned), 2); // an absence is not a change
});

test("equal ids are found first, whatever their case", () => {
  assert.deepEqual(runs.search(run, "ANN").map((row) => run.ids[row]), ["ann", "Ann b", "joanna"]);
  assert.deepEqual(runs.search(run, "  "), []);
  assert.deepEqual(runs.search(run, "zoe"), []);
});

test("facts of a cluster", () => {
  const facts = runs.factsOf(run, 0, 0);
  assert.equal(facts.size, 2);
  assert.equal(facts.before, null);
  assert.deepEqual(facts.features.map(({ name, difference, spread }) => [name, difference, spread]), [["y", 1, 0.25]]);
  assert.equal(runs.factsOf(run, 0, 7).features[0].difference, 0); // a feature without spread
  assert.equal(runs.factsOf(run, 1, 0).kept, 1);
  assert.equal(runs.factsOf(run, 1, 99).size, 0);
});

test("proximities have a name that fits", () => {
  const of = (measure, inside) => runs.proximityName({ ...run, measure, densities: [[[inside, 0.1, []], null]] });
  assert.deepEqual([of("modularity", 0.5), of("modularity", 3), of("silhouette", 0.5)], ["density", "mean weight", "mean proximity"]);
});

test("colours and names", () => {
  assert.equal(runs.colourOf(run, 7), "#222222");
  assert.equal(runs.colourOf(run, -1), "#808080");
  assert.deepEqual([7, -1, -2].map(runs.nameOf), ["cluster 7", "in no cluster", "absent"]);
});

test("tables quote commas, quotes and line ends", () => {
  assert.equal(runs.csvLine(["a,b", 'say "x"', "two\nlines", null, 1.5]), '"a,b","say ""x""","two\nlines",,1.5\r\n');
  const labels = runs.labelsCsv(run).split("\r\n");
  assert.equal(labels.length, 1 + 11 + 1); // a head, one object is absent once, and the end
  assert.equal(labels[1], "mon,ann,0");
  assert.deepEqual(runs.alphaCsv(run).split("\r\n").slice(0, 2), ["step,time,n,k,alpha,kept,silhouette", "1,mon,4,2,,,0.5"]);
  assert.match(runs.eventsCsv(run), /tue,growth,0,0,2,2,3,"cluster 0, ""the large"" one, grew"/);
});
