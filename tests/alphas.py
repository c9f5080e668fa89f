"""α of proximities by given labels."""

from affect_xp.affect.forgetting import noise_and_drift, share_of_noise


def estimate(W, past, partition, past_partition, correction=None):
    """Return the estimated α; the partition is given in the order of W's objects and of the past's."""
    return share_of_noise(*noise_and_drift(W.group(partition), past.group(past_partition), correction))
