"""One module per command: ``EXAMPLE``, ``add_arguments(parser)`` and ``run(args) -> exit code``."""
