##@ Serve and ask

.PHONY: segment
segment: $(LAYER)/tools ##+ Colour each class in a picture: IMG=street.jpg (OUT=coloured.png, TOP=5, JSON=1)
	$(RUN) serve.ask segmentation
