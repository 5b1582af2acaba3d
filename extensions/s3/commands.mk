##@ Operate

.PHONY: s3-check s3-up s3-down
s3-check: $(LAYER)/tools $(LAYER)/s3 ##+ Check the repository on S3 and what each key may do there
	$(RUN) extensions.s3.commands.s3_check

s3-up: $(LAYER)/tools ##+ Start an S3 server in a container, to try REPOSITORY=s3://…
	$(RUN) extensions.s3.commands.s3_server up

s3-down: $(LAYER)/tools ##+ Stop that S3 server; its data is kept
	$(RUN) extensions.s3.commands.s3_server down
