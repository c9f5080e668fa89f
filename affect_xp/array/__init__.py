"""The only module that names array libraries: namespaces, devices, thin products, threads, random numbers."""
