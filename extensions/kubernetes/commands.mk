##@ Operate

.PHONY: kubernetes cluster-up
kubernetes: $(LAYER)/tools ##+ Write what Kubernetes needs, with these settings, to build/kubernetes (PUSH=registry.example/team)
	$(RUN) extensions.kubernetes.commands.kubernetes

cluster-up: $(LAYER)/tools ##+ Start servers in pods of a cluster (REGISTRY=registry.example/team NAMESPACE=team REPLICAS=3)
	$(RUN) extensions.kubernetes.commands.cluster_up
