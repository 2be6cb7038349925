"""NVIDIA's library without NVIDIA: a small C library of the same name that answers from a text file."""
