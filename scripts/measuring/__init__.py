"""How fast a server answers and where the time goes: perf_analyzer's and Triton's own figures."""
