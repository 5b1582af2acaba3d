##@ Operate

.PHONY: captured replay
captured: $(LAYER)/tools ##+ Show what was kept of requests (KEEP=1%); TO=folder or s3://…: copy it (MOST=50: those most worth a label); FORGET=id; SEAL=file: encrypt what comes
	$(RUN) extensions.capture.commands.captured

replay: $(LAYER)/tools ##+ Ask again what was kept, at its own times: OF=folder VERSION=3 (URL=host:port, SPEED=2), and compare
	$(RUN) extensions.capture.commands.replay
