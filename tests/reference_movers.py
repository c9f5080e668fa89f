"""The slow twin of `affect_xp.affect.movers`: one pass over all entries, in plain NumPy."""

import numpy as np

PI, KAPPA, PHI_LEAST, UNIFORM = 0.01, 1.0, 0.25, 0.1


def div(a, b):
    return np.divide(a, b, out=np.zeros(np.broadcast(a, b).shape), where=b > 1e-12)


class Sums:
    """Sums of W and of the past by the clusters z, over the pairs in M, which have a past."""

    def __init__(self, w, past, M, z, k):
        Z = np.eye(k + 1)[z][:, :k]
        w, past = w * M, past * M
        self.z, self.Z, self.k, self.has = z, Z, k, M.any(1)
        self.WZ, self.PZ, self.MZ = w @ Z, past @ Z, M @ Z
        self.N = Z.T @ self.MZ
        self.W1, self.P1 = Z.T @ self.WZ, Z.T @ self.PZ
        self.W2, self.P2, self.WP = (Z.T @ (x @ Z) for x in (w * w, past * past, w * past))
        self.n = Z.T @ self.has


def block_noise(q):
    ok = q.N > 2
    mw, mp = div(q.W1, q.N) * ok, div(q.P1, q.N) * ok
    f = ok * div(q.N, q.N - 1 - np.eye(q.k))
    vw, vp, c = (f * (div(a, q.N) - b) for a, b in ((q.W2, mw * mw), (q.P2, mp * mp), (q.WP, mw * mp)))
    c = np.clip(c, 0, np.maximum(np.minimum(vw, vp), 0))
    return vw - c, vp - c + ok * (mw - mp) ** 2, mw, ok


def row_inflation(q, v):
    r, y = div(q.WZ, q.MZ), div(q.PZ, q.MZ)
    G, n = q.Z * q.has[:, None], q.n[:, None]
    dr, dy = ((x - q.Z @ div(G.T @ x, n)) for x in (r, y))
    f = div(1.0, n - 1) * (n > 1.5)
    V, Y, C = f * (G.T @ (dr * dr)), f * (G.T @ (dy * dy)), f * (G.T @ (dr * dy))
    C = np.clip(C, 0, np.minimum(V, Y))
    use = (q.N > 2) * (n > 1.5)
    a, b = (use * q.N * (V - C)).sum(), (use * n * v).sum()
    return max(1.0, a / b) if b > 0 else 1.0


def margin_weight(q, pi=PI):
    noise, error = margin_errors(q, pi)
    return noise / (noise + error) if noise + error > 0 else 0.0


def margin_errors(q, pi=PI):
    v, e, mu, _ = block_noise(q)
    contrast = np.diag(mu)[:, None] - mu + np.diag(mu) - mu.T
    K, rho = (margins(q)[0] * contrast**2).sum(), row_inflation(q, v)
    return pooled(q, v), pooled(q, e) + pi * K / rho


def margins(q):
    def d(x):
        return np.diag(x)[:, None]

    ok, m = q.N > 2, div(q.N, q.n[:, None])
    off = ok & d(ok) & d(ok).T & ~np.eye(q.k, dtype=bool)
    return q.n[:, None] * div(d(m) * m, d(m) + m) * off, m


def pooled(q, x):
    w, m = margins(q)
    if not w.any():
        return (q.N * x).sum()
    return (w * (np.diag(div(x, m))[:, None] + div(x, m))).sum()


def two_sided_terms(past, future):
    """Return V, D_F, D_B and C from the sums of W with the past and with the future."""
    (V, D_F), (V_B, D_B) = margin_errors(past), margin_errors(future)
    mu = div(past.W1, past.N) * (past.N > 2)
    shifts = (mu - div(q.P1, q.N) * (q.N > 2) for q in (past, future))
    return np.array([(V + V_B) / 2, D_F, D_B, pooled(past, np.prod(list(shifts), axis=0))])


def move_probability(q, pi=PI):
    R, P, z = np.maximum(q.WZ, 0), np.maximum(q.PZ, 0), q.z
    R, P, i = R * q.has[:, None], P * q.has[:, None], np.flatnonzero(z >= 0)
    S = R + P
    if q.k < 2 or S.sum() <= 0:
        return np.zeros(len(z))
    mu = div(q.W1, q.N)
    var = div(q.W2 - q.N * mu * mu, q.N - 1 - np.eye(q.k))
    phi = max(PHI_LEAST, (np.maximum(var, 0) * q.N).sum() / max(q.W1.sum(), 1e-300))
    Q = q.Z.T @ S
    g = (1 - UNIFORM) * Q.sum(0) / Q.sum() + UNIFORM / q.k
    profile = np.log((Q + KAPPA * g) / (Q.sum(1, keepdims=True) + KAPPA))
    own = np.maximum(Q[z] - S + KAPPA * g, 1e-9)
    own = np.log(own / own.sum(1, keepdims=True))

    def posterior(X):
        L = X @ profile.T
        L[i, z[i]] = (X * own).sum(1)[i]
        L = np.exp((L - L.max(1, keepdims=True)) / phi)
        return L / L.sum(1, keepdims=True)

    same = (posterior(P) * posterior(R)).sum(1)
    stay, move = (1 - pi) * same, pi * (1 - same) / (q.k - 1)
    known = q.has & (R.sum(1) > 0) & (P.sum(1) > 0)
    return np.where(known, move / np.maximum(stay + move, 1e-300), 0.0)


def run(steps, cluster, n_iter=3):
    """Return labels, a and p of each step (ids, W): the whole method; objects without a past are new."""
    out, psi, before = [], None, ()
    for ids, w in steps:
        source = np.array([before.index(x) if x in before else -1 for x in ids])
        known = source >= 0
        M = known[:, None] & known & ~np.eye(len(ids), dtype=bool)
        a, p, new = 0.0, None, w
        z = cluster(w)
        if M.any():
            past = psi[np.ix_(source, source)]
            for i in range(n_iter):
                q = Sums(w, past, M, np.where(known, z, -1), int(z.max()) + 1)
                p, a = move_probability(q), margin_weight(q)
                s = np.where(known, np.where(p > PI, 1 - p, 1.0), 0.0)
                new = w + a * np.outer(s, s) * (past - w)
                z, seen = cluster(new), z
                if i and np.array_equal(z, seen):
                    break
        psi, before = new, list(ids)
        out.append((z, a, p, new))
    return out
