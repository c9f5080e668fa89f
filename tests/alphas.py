"""α of proximities for given labels."""

from affect_xp.affect.forgetting import noise_and_drift, share_of_noise


def estimate(W, past, partition, past_partition, correction=None):
    """Return the estimated α; `partition` and `past_partition` are in the order of W and of the past."""
    return share_of_noise(*noise_and_drift(W.group(partition), past.group(past_partition), correction))
