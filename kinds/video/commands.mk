##@ Serve and ask

.PHONY: watch
watch: $(LAYER)/tools ##+ Tell what a video shows, smoothed over time: VIDEO=clip.mp4 (OUT=labelled.mp4, LIVE=1, TOP=5, JSON=1)
	$(RUN) serve.ask video
