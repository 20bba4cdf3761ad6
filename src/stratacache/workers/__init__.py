"""Several gateway processes on one port: started, watched and drained by a parent, counted as one."""
