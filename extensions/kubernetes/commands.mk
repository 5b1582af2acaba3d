##@ Operate

.PHONY: kubernetes
kubernetes: $(LAYER)/tools ##+ Write what Kubernetes needs, with these settings, to build/kubernetes (PUSH=registry.example/team)
	$(RUN) extensions.kubernetes.commands.kubernetes
