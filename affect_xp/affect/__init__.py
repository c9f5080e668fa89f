"""AFFECT itself: block moments, the forgetting factor, the first labels, the step, hindsight."""
