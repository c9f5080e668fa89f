"""The AFFECT algorithm: block moments, the forgetting factor, initial labels, the step, hindsight."""
