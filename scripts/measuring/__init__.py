"""How fast a server answers, and where the time goes: perf_analyzer's figures and Triton's own."""
