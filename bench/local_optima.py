"""Share of runs in which k-means misses well-separated clusters, at the first and the last of ten steps.

    python -m bench.local_optima                       # 20 seeds per row
    python -m bench.local_optima --seeds 200 --paper   # also with the paper's setting

The clusters are blobs of unit variance whose centres are at least eight standard deviations apart, with 15
objects each. A run is wrong if its adjusted Rand index is below .95. With churn a tenth of the objects is
replaced at each step. With `--spoilt` the first step starts from labels in which two clusters are merged
and a third one is halved; the table gives the shares of runs that are wrong then, and two steps later.
"""

import argparse
import sys
from collections.abc import Iterator

import numpy as np

import affect_xp as ax

K, PER_CLUSTER, STEPS, SEPARATION, CHURN = (3, 5, 8, 12, 20), 15, 10, 8.0, 0.1
PAPER = {"init": "random", "n_init": 1, "tol": 0.0}
KINDS = {"dense": lambda x: ax.Dense(x @ x.T), "factored": ax.Factored.from_features}


def steps(k: int, seed: int, churn: float) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield the features, the true clusters and the ids of each step."""
    rng, centres = np.random.default_rng(seed), []
    while len(centres) < k:
        centre = rng.uniform(-1, 1, 2) * 1.2 * SEPARATION * np.sqrt(k)
        if all(np.linalg.norm(centre - other) >= SEPARATION for other in centres):
            centres.append(centre)
    n = PER_CLUSTER * k
    labels, ids = np.arange(n) % k, np.arange(n)
    for t in range(STEPS):
        replaced = rng.random(n) < churn * (t > 0)
        ids = np.where(replaced, n * (t + 1) + np.arange(n), ids)
        yield np.array(centres)[labels] + rng.normal(size=(n, 2)), labels, ids


def spoilt(truth: np.ndarray) -> np.ndarray:
    """Return labels in which two clusters are merged, and a third one is halved."""
    labels = np.where(truth == 1, 0, truth)
    labels[np.flatnonzero(truth == 2)[::2]] = 1
    return labels


def wrong_steps(kind: str, k: int, seed: int, churn: float, options: dict, spoil: bool) -> list[bool]:
    """Return for each step of a run whether its clusters are wrong."""
    model, wrong = ax.Affect(ax.KMeans(k, **options), random_state=seed), []
    for t, (x, truth, ids) in enumerate(steps(k, seed, churn)):
        if spoil and t < 2:
            start = {"init": spoilt(truth), "n_init": 1} if t == 0 else options
            model.set_params(clusterer=ax.KMeans(k, **start))
        model.partial_fit(KINDS[kind](x), ids=ids)
        wrong.append(ax.adjusted_rand_index(model.labels_, truth) < 0.95)
        if spoil and t == 2:
            break
    return wrong


def main() -> int:
    """Print one row per representation, churn and setting."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--paper", action="store_true", help="also run the paper's setting of k-means")
    parser.add_argument("--spoilt", action="store_true", help="start the first step from wrong labels")
    args = parser.parse_args()
    settings = {"default": {}} | ({"paper": PAPER} if args.paper else {})
    print(f"{'share of wrong runs, first and last step':50}", *(f"k = {k:<9}" for k in K))
    for kind in KINDS:
        for churn in (0.0, CHURN):
            for name, options in settings.items():
                runs = {
                    k: [wrong_steps(kind, k, seed, churn, options, args.spoilt) for seed in range(args.seeds)]
                    for k in K
                }
                shares = (np.mean(runs[k], axis=0) for k in K)
                cells = (f"{share[0]:.3f}, {share[-1]:.3f}" for share in shares)
                print(f"{f'{kind}, churn {churn:g}, {name}':50}", *cells, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
