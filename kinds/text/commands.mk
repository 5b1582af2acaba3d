##@ Serve and ask

.PHONY: sentiment
sentiment: $(LAYER)/tools ##+ Classify the sentiment of a text: TEXT="What a day!" (JSON=1)
	$(RUN) serve.ask sentiment

# What its tests need besides.
APART += $(LAYER)/minilm
