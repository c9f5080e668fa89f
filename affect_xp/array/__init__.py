"""The one door to the array libraries: namespaces and devices, thin products, threads, random numbers."""
