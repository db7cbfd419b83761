"""What our Triton kernels share: the attention step itself, launches as data, choices of tile sizes, targets.

Importing this package imports neither torch nor triton; its modules import both.
"""
