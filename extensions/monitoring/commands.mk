##@ Operate

.PHONY: monitoring
monitoring: $(LAYER)/tools ##+ Prometheus with percentiles, objectives and alerts beside the server (LATENCY_MS=500)
	$(RUN) extensions.monitoring.commands.monitoring
