##@ Serve and ask

.PHONY: add-callable
add-callable: $(LAYER)/tools ##+ Serve a Python function of your own: FILE=mine.py (NEW=mine.py writes one)
	$(RUN) kinds.callable.add_callable
