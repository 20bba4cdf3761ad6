"""Indexes of stored questions by their vectors: exact, graph and compressed, in this process or on a server."""

# Before usearch: loaded after it, onnxruntime crashes the process (usearch 2.26 with onnxruntime 1.32).
import onnxruntime  # noqa: F401
