"""The gateway's pipeline in a program's own process: ``Stratacache``, and ``SyncStratacache``, which is generated."""
