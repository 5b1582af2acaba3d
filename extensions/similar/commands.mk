##@ Serve and ask

.PHONY: similar index
similar: $(LAYER)/tools ##+ Find similar pictures in the index, or a folder: IMG=photo.jpg (IN=photos, TOP=5, JSON=1)
	$(RUN) extensions.similar.commands.similar

index: $(LAYER)/tools $(LAYER)/index ##+ Add a folder's new and changed pictures to that index: IN=photos (YES=1: remove those that are gone)
	$(RUN) extensions.similar.commands.index
