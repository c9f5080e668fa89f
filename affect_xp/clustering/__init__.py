"""Static clustering of a proximity: k-means, spectral, hierarchical, and external clusterers."""
