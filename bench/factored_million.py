"""AFFECT k-means on dot products of a million objects, against scikit-learn's KMeans on the same features.

    python -m bench.factored_million                 # 1,000,000 objects, 15 features, 10 steps, 12 clusters
    python -m bench.factored_million --n 100000      # a tenth of the size
    python -m bench.factored_million --churn 0.01    # with 1 % of the objects replaced at each step

Each step is timed right after scikit-learn's KMeans (one start) on the features of that step, so that both
run under the same load. Both use a tolerance of 1e-4: scikit-learn for the shift of the centroids, ours for
the decrease of the sum of squares. Memory is the peak resident size during AFFECT steps minus that at the
start, relative to the features of all steps so far, which the smoothed proximities hold.
"""

import argparse
import sys
from collections.abc import Iterator

import numpy as np
from sklearn.cluster import KMeans

import affect_xp as ax
from affect_xp.proximity.factored import Factored

from ._measure import resident, watched


def steps(
    n: int, p: int, k: int, n_steps: int, churn: float, dtype: str
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield features and ids of each step: drifting clusters, with objects that come and go."""
    rng = np.random.default_rng(0)
    centres, labels, ids = 2 * rng.normal(size=(k, p)), rng.integers(0, k, n), np.arange(n)
    for t in range(n_steps):
        yield (centres[labels] + rng.normal(size=(n, p))).astype(dtype), ids
        centres = centres + 0.2 * rng.normal(size=(k, p))
        n_new = int(churn * n)
        ids = np.concatenate([ids[n_new:], n * (t + 1) + np.arange(n_new)])
        labels = np.concatenate([labels[n_new:], rng.integers(0, k, n_new)])


def main() -> None:
    """Run the benchmark and print one line per step."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=1_000_000, help="objects")
    parser.add_argument("--features", type=int, default=15)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--clusters", type=int, default=12)
    parser.add_argument("--churn", type=float, default=0.0, help="share of the objects replaced at each step")
    parser.add_argument(
        "--tol", type=float, default=1e-4, help="of k-means; scikit-learn's default is 1e-4 too"
    )
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float64")
    args = parser.parse_args()
    if not sys.platform.startswith("linux"):
        parser.error("memory is read from /proc: this runs on Linux only")

    model = ax.Affect(ax.KMeans(args.clusters, init="k-means++", tol=args.tol), random_state=0)
    base, peak, held = resident(), 0, 0
    ours, theirs = [], []
    print("step  seconds (Lloyd)  scikit-learn (Lloyd)  ratio  alpha  rank  peak/features")
    for t, (X, ids) in enumerate(
        steps(args.n, args.features, args.clusters, args.steps, args.churn, args.dtype)
    ):
        rival = KMeans(args.clusters, n_init=1, random_state=t)
        theirs.append(watched(lambda rival=rival, X=X: rival.fit(X))[0])
        names = ids if args.churn else None
        seconds, highest = watched(
            lambda X=X, names=names: model.partial_fit(Factored.from_features(X), ids=names)
        )
        ours.append(seconds)
        held += X.nbytes
        peak = max(peak, highest - base)
        print(
            f"{t:4d} {seconds:8.2f} {model.history_[-1].n_iter:7d} {theirs[-1]:13.2f} {rival.n_iter_:7d} "
            f"{ours[-1] / theirs[-1]:6.2f} {model.alpha_:6.3f} {model.smoothed_.rank:5d} {peak / held:14.2f}",
            flush=True,
        )
    agreement = ax.adjusted_rand_index(model.labels_, rival.labels_)
    print(f"all steps: {sum(ours):.1f} s against {sum(theirs):.1f} s, ratio {sum(ours) / sum(theirs):.2f}")
    print(f"worst step: ratio {max(o / r for o, r in zip(ours, theirs, strict=True)):.2f}")
    print(f"peak {peak / 2**20:.0f} MiB = {peak / held:.2f} × the {held / 2**20:.0f} MiB of features held")
    print(f"adjusted Rand index between the two at the last step: {agreement:.3f}")


if __name__ == "__main__":
    main()
