##@ Serve and ask

.PHONY: detect
detect: $(LAYER)/tools ##+ Find what is where in a picture: IMG=street.jpg (OUT=drawn.png, TOP=5, JSON=1, MODEL=)
	$(RUN) serve.ask detection
